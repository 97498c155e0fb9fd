// Branches: a switch dense enough for brx, nested loops, early exits, unroll pragmas, predicates, goto, local arrays.
extern "C" __global__ void dense_switch(const int* in, int* out) {
    int v = in[threadIdx.x], r;
    switch (v) {
        case 0: r = in[100] * 3; break;
        case 1: r = in[101] + out[1]; break;
        case 2: r = in[102] - out[2] * 7; break;
        case 3: out[5] = v; r = 4; break;
        case 4: r = __popc(in[104]); break;
        case 5: r = in[105] / 3; break;
        case 6: r = in[106] % 11; out[6] = 1; break;
        case 7: r = in[107] << 3; break;
        case 8: r = ~in[108]; break;
        case 9: r = in[109] * in[110]; break;
        case 10: __threadfence(); r = 1; break;
        case 11: r = in[111] ^ out[3]; break;
        default: r = -1;
    }
    out[threadIdx.x] = r;
}

extern "C" __global__ void loops(const float* a, float* out, int n, int m) {
    float s = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
#pragma unroll 4
        for (int j = 0; j < m; j++) {
            if (a[i * m + j] < 0) continue;
            if (a[i * m + j] > 1e6f) goto done;
            s += a[i * m + j];
        }
    }
done:
    out[threadIdx.x] = s;
}

extern "C" __global__ void local_array(const int* in, int* out, int n) {
    int stack[64];
    double history[16];
    int top = 0;
    for (int i = 0; i < n; i++) {
        while (top && stack[top - 1] > in[i]) top--;
        stack[top++ & 63] = in[i];
        history[i & 15] = (double)top;
    }
    int s = (int)history[in[n] & 15];
    for (int i = 0; i < top; i++) s += stack[i];
    out[threadIdx.x] = s;
}

extern "C" __global__ void collatz(unsigned long long* v) {
    unsigned long long x = v[threadIdx.x], steps = 0;
    do {
        x = (x & 1) ? 3 * x + 1 : x >> 1;
        if (++steps > 1000000ull) __trap();
    } while (x != 1);
    v[threadIdx.x] = steps;
    if (steps == 3) __brkpt();
    if (steps == 5) asm volatile("exit;");
}

extern "C" __global__ void logic(const bool* p, int* out, int a, int b, float x, float y) {
    bool q = p[threadIdx.x] && (a < b || x >= y) && !(a == 3 && y != 0.0f);
    bool r = __all_sync(~0u, q) | __any_sync(0xffff, x < y);
    out[threadIdx.x] = q ? (r ? a : b) : (x == x) + 2 * (unsigned(a) > unsigned(b));
}
