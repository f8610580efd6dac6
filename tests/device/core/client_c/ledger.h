/* A device that draws scalar reports: its slots, its ledger and the rules before a draw. It accepts campaigns without
 * asking its policy about them: signatures, refusals and streams are not in this client. */
#ifndef LEDGER_H
#define LEDGER_H
#include "draw.h"

typedef struct {
    const char *body, *measure;
    uint8_t fingerprint[8], digest[32]; /* digest: of the schedule's seed and the device's name */
    int64_t seconds, cycle, epoch, first, last, offset, bound, otherwise, stride, cohort_stride;
    Mechanism cohort, report;
    const Json *ranges;
    uint64_t units;
} Campaign;

typedef struct {
    int64_t slot_seconds, period, most, rest, lifetime, boots_per_day, write_seconds;
    bool by_ticks, one_shot;
} Policy;

typedef struct {
    int64_t spent_until, uptime, day, boots, last_epoch;
    uint32_t sequence;
    uint64_t units;
    const Campaign *current, *next;
    int64_t start[48], drew[48]; /* of each group's last draw, oldest first */
    int groups, count, waiting, reserved;
    uint64_t reserved_units;
    char reports[96][49];
} Ledger;

typedef struct {
    const char *name;
    const Policy *policy;
    Ledger ledger, *file; /* file: NULL without one */
    Ledger kept;
    bool lost, begun, broken, drawn;
    const char *paused;
    Words *words;
    int64_t ticks, counted_at, drew_at, rest_from, file_until, issued_at, heard_at, opened_at, seconds;
    int reserved;
    const Campaign *priced;
    const int64_t *pause;
    bool seen;
    int64_t begins, ends;
    /* the open slot (campaign NULL: none), and the finished one */
    const Campaign *open, *finished;
    int64_t slot, since, opened, finished_slot, finished_opened, finished_value;
    bool whole, has_value;
    /* the value */
    const char *measure;
    int64_t count, sum, largest, newest, base, on_since;
    bool has_base, on;
} Device;

void device_boot(Device *device);
bool device_accept(Device *device, const Campaign *campaign, int64_t issued_at, int64_t now);
void device_observe(Device *device, int64_t sample, int64_t now);
/* The report in hexadecimal, NULL if there is none. */
const char *device_close(Device *device, int64_t now);
#endif
