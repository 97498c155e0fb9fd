// Texture and surface objects, video instructions.
extern "C" __global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float4* out, int x, int y) {
    float4 v = tex2D<float4>(t, x + 0.5f, y + 0.5f);
    v.x += tex1Dfetch<float>(t, x) + tex3D<float>(t, x, y, 1) + tex2DLod<float>(t, x, y, 2.0f) + tex2Dgather<float4>(t, x, y, 1).z;
    v.y += texCubemap<float>(t, x, y, 0.5f) + tex2DLayered<float>(t, x, y, 3);
    uchar4 u = surf2Dread<uchar4>(s, x * 4, y);
    surf2Dwrite(u, s, x * 4 + 4, y, cudaBoundaryModeZero);
    surf1Dwrite((int)u.x, s, x);
    out[threadIdx.x] = v;
}

extern "C" __global__ void video(unsigned* v) {
    unsigned a = v[0], b = v[1], c = v[2], r;
    r = __vadd4(a, b) + __vabsdiffu2(a, c) + __vmaxs4(b, c) + __vcmpgtu4(a, b) + __vavgu4(a, b) + __vsub2(b, c) + __viaddmax_s32_relu(a, b, c);
    asm("vmad.s32.s32.u32.sat %0, %1.b0, %2.h1, -%3;" : "=r"(a) : "r"(a), "r"(b), "r"(c));
    asm("vadd.s32.u32.s32.sat.add %0, %1.b3, %2, %3;" : "=r"(b) : "r"(a), "r"(b), "r"(c));
    v[threadIdx.x] = r + a + b;
}
