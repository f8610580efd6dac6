#include "draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL (1 << 30)

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

uint32_t big_endian(const uint8_t *b) { return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]; }

static void put_big_endian(uint8_t *b, uint32_t value) {
    for (int i = 0; i < 4; i++) b[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void block(uint32_t h[8], const uint8_t *bytes) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = big_endian(bytes + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        w[i] = w[i - 16] + s + w[i - 7] + (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
        uint32_t s0 = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void sha256(const void *data, size_t size, uint8_t digest[32]) {
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *bytes = data;
    uint8_t last[128] = {0};
    size_t left = size;
    for (; left >= 64; left -= 64, bytes += 64) block(h, bytes);
    memcpy(last, bytes, left);
    last[left] = 0x80;
    size_t end = left < 56 ? 64 : 128;
    put_big_endian(last + end - 8, (uint32_t)(size >> 29));
    put_big_endian(last + end - 4, (uint32_t)(size << 3));
    for (size_t i = 0; i < end; i += 64) block(h, last + i);
    for (int i = 0; i < 8; i++) put_big_endian(digest + 4 * i, h[i]);
}

void words_refill(Words *words) {
    char name[128];
    uint8_t digest[32];
    for (int i = 0; i < 8; i++) {
        sha256(name, (size_t)snprintf(name, sizeof name, "%s%d", words->seed, ++words->block), digest);
        for (int j = 0; j < 8; j++) {
            const uint8_t *b = digest + 4 * j;
            words->word[8 * i + j] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        }
    }
    words->used = 0;
}

uint32_t words_below(Words *words, uint32_t n) {
    uint32_t mask = n - 1;
    for (int i = 1; i < 32; i *= 2) mask |= mask >> i;
    for (;;) {
        if (words->used == 64) exit(3);
        uint32_t word = words->word[words->used++] & mask;
        if (word < n) return word;
    }
}

static bool small(const Json *list) {
    for (Json *each = list->first; each; each = each->next)
        if (each->type != 'n' || strpbrk(each->text, ".eE")) return false;
    return true;
}

static bool window_make(Window *made, const int64_t f[5], const Json *edges, int64_t first) {
    for (int i = 1; i < 5; i++)
        if (f[i] < 1 || f[i] >= SMALL) return false;
    if (f[0] <= f[1] || f[0] >= SMALL) return false;
    *made = (Window){f[0], f[1], f[2], f[3], f[4], f[3] * f[4] + f[2], 0, first, edges};
    made->total = (f[0] - f[1]) * f[2] + f[1] * made->cells;
    return made->total < SMALL;
}

static bool rising(const Json *list) {
    if (!small(list)) return false;
    for (Json *each = list->first; each && each->next; each = each->next)
        if (json_int(each) >= json_int(each->next)) return false;
    return true;
}

/* The weights of one row of a table: three bytes each, in base64. */
static int row_read(const char *text, int32_t *weights) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int count = 0;
    if (strlen(text) % 4) return 0;
    for (; *text; text += 4) {
        int32_t weight = 0;
        for (int i = 0; i < 4; i++) {
            const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
            if (!digit) return 0;
            weight = weight << 6 | (int32_t)(digit - digits);
        }
        weights[count++] = weight;
    }
    return count;
}

static bool table_parse(const Json *value, Mechanism *made) {
    const Json *values = json_get(value, "values"), *rows = json_get(value, "rows");
    made->levels = json_count(values) - 1;
    made->bits = (int)json_int(json_get(value, "bits"));
    made->shift = (int)json_int(json_get(value, "shift"));
    if (!rising(values) || made->levels < 1 || json_count(rows) != made->levels + 1 || json_int(values->first) > 0) return false;
    made->values = calloc((size_t)made->levels + 1, sizeof *made->values);
    made->weights = calloc(4950 / 3 * 2, sizeof *made->weights);
    for (int k = 0; k <= made->levels; k++) {
        const char *text = json_at(rows, k)->text;
        int symbols = strlen(text) > 6600 ? 0 : row_read(text, made->weights + k * made->symbols);
        if (!symbols || (k && symbols != made->symbols) || (k + 1) * symbols > 4950 / 3) return false;
        made->symbols = symbols;
        int64_t sum = 0;
        for (int j = 0; j < symbols; j++) {
            if (!made->weights[k * symbols + j]) return false;
            sum += made->weights[k * symbols + j];
        }
        if (sum != 1 << made->bits) return false;
        made->values[k] = (int32_t)json_int(json_at(values, k));
    }
    made->reach = made->values[made->levels] >> made->shift;
    return true;
}

static void integers(const Json *list, int64_t *into) {
    for (Json *each = list->first; each; each = each->next) *into++ = json_int(each);
}

bool mechanism_parse(const Json *value, Mechanism *made) {
    memset(made, 0, sizeof *made);
    const Json *kind = json_get(value, "kind");
    if (json_is(kind, "window") || json_is(kind, "square-wave")) {
        const Json *edges = json_is(kind, "window") ? NULL : json_get(value, "edges");
        int64_t f[5] = {json_int(json_get(value, "a")), json_int(json_get(value, "b")), json_int(json_get(value, "window"))};
        f[3] = edges ? 1 : json_int_or(value, "stride", 0);
        f[4] = edges ? json_count(edges) - 2 : json_int_or(value, "levels", 0);
        made->kind = 'w';
        return (!edges || rising(edges)) && window_make(&made->window, f, edges, 0);
    }
    if (json_is(kind, "hybrid")) {
        const Json *rounding = json_get(value, "rounding"), *piecewise = json_get(value, "piecewise");
        int64_t r[5] = {0, 0, 1, 1, 1}, p[5];
        if (json_count(rounding) != 2 || json_count(piecewise) != 5) return false;
        integers(rounding, r);
        integers(piecewise, p);
        made->kind = 'h';
        made->coin = json_int(json_get(value, "coin"));
        return made->coin >= 0 && made->coin <= 65536 && window_make(&made->rounding, r, NULL, 0) &&
               window_make(&made->window, p, NULL, 2);
    }
    made->kind = 't';
    return json_is(kind, "table") && table_parse(value, made);
}

static int window_level(const Window *w, int64_t x, int64_t width, Words *words) {
    if (w->edges) {
        int level = 0;
        for (Json *edge = w->edges->first->next; edge->next; edge = edge->next) level += x >= json_int(edge);
        return level;
    }
    int64_t scaled = x * w->levels;
    return (int)(scaled / width) + (words_below(words, (uint32_t)width) < scaled % width);
}

static int64_t window_draw(const Window *w, int level, Words *words) {
    int64_t u = words_below(words, (uint32_t)w->total), inside = w->a * w->window, start = w->stride * level;
    if (u < inside) return w->first + start + u / w->a;
    int64_t cell = (u - inside) / w->b;
    return w->first + (cell < start ? cell : cell + w->window);
}

static int table_level(const Mechanism *m, int64_t x, int64_t width, Words *words) {
    if (width != m->reach) {
        int64_t scaled = x * m->reach;
        x = scaled / width + (words_below(words, (uint32_t)width) < scaled % width);
    }
    x <<= m->shift;
    int k = 0;
    for (int i = 1; i < m->levels; i++) k += m->values[i] <= x;
    return k + (words_below(words, (uint32_t)(m->values[k + 1] - m->values[k])) < x - m->values[k]);
}

static int64_t table_draw(const Mechanism *m, int level, Words *words) {
    int64_t u = words_below(words, 1u << m->bits), sum = 0, symbol = 0;
    for (int j = 0; j < m->symbols - 1; j++) {
        sum += m->weights[level * m->symbols + j];
        symbol += u >= sum;
    }
    return symbol;
}

bool mechanism_draw(const Mechanism *m, int64_t x, int64_t width, Words *words, int *level, int64_t *symbol) {
    if (x < 0 || x > width) return false;
    if (m->kind == 't') {
        *level = table_level(m, x, width, words);
        *symbol = table_draw(m, *level, words);
        return true;
    }
    const Window *part = &m->window;
    if (m->kind == 'h' && words_below(words, 65536) >= m->coin) part = &m->rounding;
    *level = window_level(part, x, width, words);
    *symbol = window_draw(part, *level, words);
    return true;
}

void mechanism_certificate(const Mechanism *m, int64_t *a, int64_t *b) {
    const Window *r = &m->rounding, *p = &m->window;
    *a = p->a;
    *b = p->b;
    if (m->kind == 'h' && p->a * r->b < r->a * p->b) {
        *a = r->a;
        *b = r->b;
    }
    if (m->kind != 't') return;
    *a = *b = 1;
    for (int j = 0; j < m->symbols; j++) {
        int64_t most = 0, least = 1 << 24;
        for (int k = 0; k <= m->levels; k++) {
            int64_t weight = m->weights[k * m->symbols + j];
            most = weight > most ? weight : most;
            least = weight < least ? weight : least;
        }
        if (most * *b > *a * least) {
            *a = most;
            *b = least;
        }
    }
}

typedef unsigned __int128 Wide;

static Wide up(Wide p, Wide q) { return (p + q - 1) / q; }

/* 2^63 times 2 artanh(p/q), rounded up. */
static Wide artanh2(int64_t p, int64_t q) {
    Wide one = (Wide)1 << 63, z = up((Wide)p * one, (Wide)q), square = up(z * z, one), power = z, sum = 0;
    for (unsigned i = 1; i < 80; i += 2) {
        sum += up(2 * power, i);
        power = up(power * square, one);
    }
    return sum;
}

uint64_t epsilon_units(int64_t a, int64_t b) {
    Wide sum = 0;
    for (; a >= 2 * b; b *= 2) sum += artanh2(1, 3);
    if (a > b) sum += artanh2(a - b, a + b);
    return (uint64_t)up(sum, (Wide)1 << 43);
}

void report_pack(uint8_t report[24], int kind, const uint8_t fingerprint[8], uint32_t slot, uint32_t symbol, uint32_t chain,
                 uint32_t sequence) {
    report[0] = 2;
    report[1] = (uint8_t)kind;
    memcpy(report + 2, fingerprint, 8);
    put_big_endian(report + 10, slot);
    put_big_endian(report + 14, symbol);
    report[18] = (uint8_t)(chain >> 8);
    report[19] = (uint8_t)chain;
    put_big_endian(report + 20, sequence);
}

void to_hex(const uint8_t *bytes, size_t size, char *text) {
    for (size_t i = 0; i < size; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
}
