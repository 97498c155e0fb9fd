/* A program that calls a pack with products right and wrong, under the compiler's sanitizers. It is compiled together with the pack.

   SEED, CALLS: numbers of the command line. The driver is libfuzz.so, whose functions do nothing. NAME, TYPES and the shapes come from the
   test. Every call must end with a status, and every failure with a sentence. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include HEADER

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void *somewhere(void)
{
    static const uint64_t offsets[] = {0, 16, 8, 4, 2, 1};
    const uint64_t place = draw(8) ? 0x10000000000u + draw(1u << 20) * 4096 + offsets[draw(8) ? 0 : draw(6)] : draw(2) ? 0 : ~(uint64_t)0 - draw(64);
    return (void *)(uintptr_t)place;
}

static uint64_t extent(uint64_t usual)
{
    static const uint64_t odd[] = {0, 1, 3, 4, 5, 7, 9, 127, 1u << 31, ((uint64_t)1 << 31) + 1, (uint64_t)1 << 32, (uint64_t)1 << 60, ~(uint64_t)0};
    return draw(3) ? usual : odd[draw(sizeof odd / sizeof *odd)];
}

static const uint64_t shapes[][3] = SHAPES;         /* type, N, K */

int main(int count, char **given)
{
    long long call, calls = count > 2 ? atoll(given[2]) : 0, launched = 0, refused = 0;
    state = (uint64_t)(count > 1 ? atoll(given[1]) : 0);
    for (call = 0; call < calls; ++call) {
        const uint64_t *shape = shapes[draw(sizeof shapes / sizeof *shapes)];
        PRODUCT product;
        uint64_t needs = 0;
        int chosen, status;
        memset(&product, 0, sizeof product);
        product.type = (int)extent(shape[0]);
        product.m = extent(1 + draw(draw(2) ? 300 : 40000));
        product.n = draw(50) ? shape[1] : extent(shape[1]);
        product.k = draw(50) ? shape[2] : extent(shape[2]);
        product.a = somewhere();
        product.b = somewhere();
        product.d = somewhere();
        product.lda = draw(2) ? 0 : extent(product.k + draw(3) * 8);
        product.ldb = draw(2) ? 0 : extent(product.k + draw(3) * 8);
        product.ldd = draw(2) ? 0 : extent(product.n + draw(3) * 8);
        product.a_scale = (float *)somewhere();
        product.b_scale = (float *)somewhere();
        product.a_scale_ld = draw(2) ? 0 : extent((product.m + 3) / 4 * 4);
        chosen = CHOICE(&product);
        if (CONFIGURATION(chosen) == NULL)
            return 3;
        status = WORKSPACE(&product, &needs);
        product.workspace = draw(8) ? (void *)(uintptr_t)0x20000000000u : somewhere();
        product.workspace_bytes = draw(8) ? needs : draw(1 << 20);
        status = GEMM(&product, draw(2) ? NULL : (void *)(uintptr_t)64);
        if (status == 0) {
            ++launched;
            if (chosen < 0)
                return 4;
        } else {
            ++refused;
            if (status < 0 || status > 6 || ERROR() == NULL || !*ERROR() || strchr(ERROR(), '\n'))
                return 5;
        }
    }
    if (CHOICE(NULL) != -1 || GEMM(NULL, NULL) != 5 || WORKSPACE(NULL, NULL) != 5 || !strstr(ERROR(), "NULL"))
        return 6;
    printf("%lld launched, %lld refused\n", launched, refused);
    return launched && refused ? 0 : 7;
}
