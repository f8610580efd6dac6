/* SHA-256, the random numbers of the vectors, mechanisms and the bytes of a report. */
#ifndef DRAW_H
#define DRAW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"

void sha256(const void *data, size_t size, uint8_t digest[32]);
uint32_t big_endian(const uint8_t *bytes);

/* Words of 8 blocks; block i is sha256(seed + i). */
typedef struct {
    const char *seed;
    int block, used;
    uint32_t word[64];
} Words;

void words_refill(Words *words);
uint32_t words_below(Words *words, uint32_t n);

typedef struct {
    int64_t a, b, window, stride, levels, cells, total, first;
    const Json *edges;
} Window;

typedef struct {
    char kind; /* w: window or square wave, h: hybrid, t: table */
    Window window, rounding; /* a hybrid's piecewise mechanism is `window` */
    int64_t coin;
    int bits, shift, levels, symbols;
    int64_t reach;
    int32_t *values, *weights;
} Mechanism;

bool mechanism_parse(const Json *value, Mechanism *made);
bool mechanism_draw(const Mechanism *mechanism, int64_t x, int64_t width, Words *words, int *level, int64_t *symbol);
void mechanism_certificate(const Mechanism *mechanism, int64_t *a, int64_t *b);
uint64_t epsilon_units(int64_t a, int64_t b);

/* A report of one symbol. */
void report_pack(uint8_t report[24], int kind, const uint8_t fingerprint[8], uint32_t slot, uint32_t symbol, uint32_t chain,
                 uint32_t sequence);
void to_hex(const uint8_t *bytes, size_t size, char *text);
#endif
