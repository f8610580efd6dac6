#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#define DAY 86400
#define BUILT 1793491200

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t in_ticks(int64_t seconds) { return seconds - seconds / 32; }
static int64_t floored(int64_t p, int64_t q) { return p / q - (p % q < 0); }

static bool close_to(int64_t now, int64_t then) { return now >= BUILT && now - then <= DAY && then - now <= DAY; }

/* --- The cap of a period: n groups of m draws --- */

static int group_size(const Policy *policy) { return (int)((policy->most + 47) / 48); }
static int group_count(const Policy *policy) { return (int)(policy->most / group_size(policy)); }

static void cap_add(Device *d, int64_t start) {
    Ledger *l = &d->ledger;
    if (!l->groups || l->count == group_size(d->policy)) {
        if (l->groups == group_count(d->policy)) {
            memmove(l->start, l->start + 1, 47 * sizeof *l->start);
            memmove(l->drew, l->drew + 1, 47 * sizeof *l->drew);
        } else l->groups++;
        l->count = 0;
    }
    l->count++;
    l->start[l->groups - 1] = start;
    l->drew[l->groups - 1] = l->uptime;
}

static void cap_fill(Device *d, int64_t now) {
    Ledger *l = &d->ledger;
    l->groups = group_count(d->policy);
    l->count = group_size(d->policy);
    for (int g = 0; g < l->groups; g++) {
        int64_t back = ((l->groups - 1 - g) * l->count + 1) * d->policy->slot_seconds;
        l->start[g] = larger(now - back, 1);
        l->drew[g] = larger(l->uptime - 9 * back / 10, 0);
    }
}

static bool cap_permits(const Device *d, int64_t start) {
    const Ledger *l = &d->ledger;
    const Policy *p = d->policy;
    if (l->groups < group_count(p) || l->count < group_size(p)) return true;
    int64_t by_clock = p->most * p->slot_seconds >= p->period ? 0 : p->period;
    int64_t by_ticks = p->by_ticks ? in_ticks(p->period) : 0;
    return start - l->start[0] >= by_clock && l->uptime - l->drew[0] >= by_ticks;
}

/* --- The ledger's file --- */

static uint64_t cost(Device *d, const Campaign *campaign) {
    if (d->priced != campaign) d->reserved = 0;
    d->priced = campaign;
    return campaign->units;
}

static bool ledger_write(Device *d, int reserved) {
    if (d->broken) return false;
    d->kept = d->ledger;
    d->kept.spent_until = larger(d->ledger.spent_until, d->file_until);
    d->kept.sequence += (uint32_t)reserved;
    d->kept.reserved = reserved;
    d->kept.units += (uint64_t)reserved * (d->priced ? d->priced->units : 0);
    d->file = &d->kept;
    return true;
}

void device_boot(Device *d) {
    Device fresh = {.name = d->name, .policy = d->policy, .kept = d->kept, .begun = d->begun, .broken = d->broken};
    fresh.words = d->words;
    fresh.ticks = fresh.counted_at = d->ticks;
    fresh.pause = d->pause;
    fresh.lost = !d->file;
    bool has_file = d->file;
    *d = fresh;
    if (has_file) {
        d->file = &d->kept;
        d->ledger = d->kept;
        for (int i = 0; i < d->ledger.reserved; i++) cap_add(d, d->ledger.spent_until);
    }
    d->file_until = d->ledger.spent_until;
    d->rest_from = d->ledger.uptime + 1;
    d->drew_at = -1;
}

static void begin(Device *d, int64_t now) {
    Ledger *l = &d->ledger;
    if (d->lost) {
        d->lost = false;
        l->spent_until = d->file_until = now;
        if (d->begun) {
            l->uptime += d->policy->period;
            d->rest_from += d->policy->period;
            cap_fill(d, now);
            l->units = (uint64_t)d->policy->lifetime;
        }
        ledger_write(d, 0);
    }
    d->begun = true;
}

/* --- Campaigns --- */

static void count_ticks(Device *d) {
    int64_t seconds = (d->ticks - d->counted_at) / 1000;
    d->counted_at += 1000 * seconds;
    d->ledger.uptime += seconds;
}

static bool agrees(const Device *d, int64_t now) {
    int64_t passed = d->ledger.uptime - d->heard_at;
    int64_t late = larger(2 * DAY, d->ledger.current ? 96 * d->ledger.current->seconds : 0);
    return passed <= DAY + late && close_to(now, d->issued_at + passed);
}

static void promote(Device *d, int64_t now) {
    Ledger *l = &d->ledger;
    if (!l->next || (l->current && now < l->next->epoch)) return;
    l->current = l->next;
    l->next = NULL;
}

bool device_accept(Device *d, const Campaign *campaign, int64_t issued_at, int64_t now) {
    Ledger *l = &d->ledger;
    count_ticks(d);
    bool known = l->current == campaign || l->next == campaign;
    if (!known) {
        bool first = !l->current;
        begin(d, now);
        promote(d, now);
        if (l->current) l->next = campaign;
        else l->current = campaign;
        l->last_epoch = campaign->epoch;
        ledger_write(d, d->reserved);
        if (first) d->paused = NULL;
    }
    if (!agrees(d, now) || (issued_at > d->issued_at && close_to(now, issued_at))) {
        d->issued_at = issued_at;
        d->heard_at = l->uptime;
    }
    return !known;
}

/* --- Slots and their values --- */

static void value_count(Device *d, int64_t ticks) {
    if (!d->on) return;
    d->sum += ticks - d->on_since;
    d->on_since = ticks;
}

static bool value_close(Device *d, int64_t ticks, int64_t *value) {
    bool found = d->count;
    if (!strcmp(d->measure, "duration")) {
        value_count(d, ticks);
        found = found || d->on;
        *value = d->sum / 1000;
    } else if (!strcmp(d->measure, "counter")) {
        *value = d->newest - d->base;
        bool had = d->has_base;
        d->has_base = found;
        d->base = d->newest;
        found = found && had;
    } else if (!found) *value = 0;
    else if (!strcmp(d->measure, "sum")) *value = d->sum;
    else if (!strcmp(d->measure, "mean")) *value = floored(2 * d->sum + d->count, 2 * d->count);
    else if (!strcmp(d->measure, "max")) *value = d->largest;
    else if (!strcmp(d->measure, "last")) *value = d->newest;
    else abort();
    d->count = d->sum = 0;
    return found;
}

static void look(Device *d, int64_t now) {
    int64_t end = -1;
    count_ticks(d);
    if (d->open) {
        const Campaign *c = d->open;
        if (floored(now, c->seconds) == d->slot) return;
        int64_t value = 0;
        bool has_value = value_close(d, smaller(d->ticks, d->since + 1000 * c->seconds), &value);
        if (d->whole) {
            d->finished = c;
            d->finished_slot = d->slot;
            d->finished_opened = d->opened;
            d->finished_value = value;
            d->has_value = has_value;
        }
        end = (d->slot + 1) * c->seconds;
        d->open = NULL;
    }
    promote(d, now);
    const Campaign *c = d->ledger.current;
    if (!c) {
        d->paused = "no_campaign";
        return;
    }
    bool counter = !strcmp(c->measure, "counter");
    if (!d->measure || strcmp(d->measure, c->measure) || (counter && d->seconds > c->seconds)) {
        d->measure = c->measure;
        d->count = d->sum = 0;
        d->has_base = d->on = false;
    }
    d->seconds = c->seconds;
    d->opened = counter ? d->opened_at : d->ledger.uptime;
    d->opened_at = d->ledger.uptime;
    d->open = c;
    d->slot = floored(now, c->seconds);
    d->since = d->ticks;
    d->whole = d->slot * c->seconds == end;
}

void device_observe(Device *d, int64_t sample, int64_t now) {
    look(d, now);
    if (!d->open) return;
    if (!strcmp(d->measure, "duration")) {
        value_count(d, d->ticks);
        d->on = sample;
        d->on_since = d->ticks;
    } else d->sum += sample;
    d->largest = d->count ? larger(d->largest, sample) : sample;
    d->newest = sample;
    d->count++;
}

/* --- The rules before a draw --- */

static int64_t place(const Campaign *c) {
    uint64_t modulus = (uint64_t)(c->stride * (c->cohort_stride ? c->cohort_stride : 1));
    return (int64_t)((big_endian(c->digest) + (uint64_t)c->stride * big_endian(c->digest + 4)) % modulus);
}

static int64_t begin_of(const Device *d) {
    bool counter = !strcmp(d->finished->measure, "counter");
    return (d->finished_slot - counter) * d->finished->seconds;
}

static const char *pause_word(Device *d, int64_t now) {
    if (!d->pause || d->pause[1] <= d->pause[0]) return NULL;
    int64_t from = d->pause[0], until = d->pause[1], uptime = d->ledger.uptime;
    int64_t end = (d->finished_slot + 1) * d->finished->seconds, ahead = larger(from - now, 0);
    int64_t begins = ahead ? uptime + ahead + ahead / 32 + 1 : smaller(uptime, uptime + from - end);
    int64_t ends = uptime + ahead + in_ticks(until - from);
    if (!d->seen || ahead) {
        d->begins = d->seen ? smaller(d->begins, begins) : begins;
        d->ends = d->seen ? larger(d->ends, ends) : ends;
        d->seen = true;
    }
    bool by_clock = begin_of(d) < until && from < end;
    bool by_ticks = d->policy->by_ticks && d->finished_opened < d->ends && d->begins < uptime;
    return by_clock || by_ticks ? "pause" : NULL;
}

/* A clock that was far ahead has been corrected. */
static void correct(Device *d, int64_t now) {
    Ledger *l = &d->ledger;
    l->spent_until = d->file_until = now;
    l->day = smaller(l->day, now / DAY);
    for (int g = 0; g < l->groups; g++) l->start[g] = smaller(l->start[g], now);
    d->reserved = 0;
    d->drew_at = d->ticks;
    d->rest_from = l->uptime + 1;
}

static const char *spent_word(Device *d, int64_t now) {
    const Campaign *c = d->finished;
    const Policy *p = d->policy;
    Ledger *l = &d->ledger;
    int64_t start = d->finished_slot * c->seconds;
    if (d->finished_slot < c->first) return "waiting";
    if (d->finished_slot > c->last) return "ended";
    if (start + c->seconds > now) return "ahead";
    if (start < l->spent_until) {
        if (p->by_ticks && l->spent_until > now + DAY + p->write_seconds) correct(d, now);
        return "spent";
    }
    bool rested = !p->by_ticks || d->finished_opened - d->rest_from >= in_ticks(p->rest);
    if (p->rest && (begin_of(d) < l->spent_until + p->rest || !rested)) return "rest";
    if (d->drew_at < 0) {
        if (!p->one_shot && now / DAY <= l->day && l->boots >= p->boots_per_day) return "boots";
    } else if (p->one_shot) return "one_shot";
    else if (d->ticks - d->drew_at < 900 * c->seconds) return "rate";
    if (!cap_permits(d, start)) return "period";
    return p->lifetime && l->units + cost(d, c) > (uint64_t)p->lifetime ? "lifetime" : NULL;
}

static const char *obstacle(Device *d, int64_t now) {
    const Campaign *c = d->finished;
    if (!agrees(d, now)) return "clock";
    const char *pause = pause_word(d, now);
    if ((d->finished_slot + place(c)) % c->stride) return "turn";
    const char *word = spent_word(d, now);
    return word ? word : pause;
}

static bool commit(Device *d) {
    if (d->ledger.spent_until <= d->file_until && d->reserved) {
        d->reserved--;
        return true;
    }
    int64_t apart = d->finished->seconds + d->policy->rest, before = d->file_until;
    int ahead = (int)((d->policy->write_seconds + apart - 1) / apart - 1);
    d->file_until = d->ledger.spent_until + ahead * apart;
    if (!ledger_write(d, ahead)) {
        d->file_until = before;
        return false;
    }
    d->reserved = ahead;
    return true;
}

static const char *release(Device *d) {
    const Campaign *c = d->finished;
    Ledger *l = &d->ledger;
    bool cohort = c->cohort_stride && (d->finished_slot + place(c)) % (c->stride * c->cohort_stride) == 0;
    int64_t low = 0, high = c->bound, symbol;
    int level;
    if (!cohort)
        for (Json *each = c->ranges->first; each; each = each->next)
            if (json_int(each->first) <= d->finished_slot % c->cycle) {
                low = json_int(json_at(each, 1));
                high = json_int(json_at(each, 2));
            }
    int64_t reading = d->has_value ? d->finished_value : c->otherwise;
    int64_t x = smaller(larger(reading - c->offset, low), high) - low;
    words_refill(d->words);
    if (!mechanism_draw(cohort ? &c->cohort : &c->report, x, high - low, d->words, &level, &symbol)) abort();
    uint8_t report[24];
    report_pack(report, cohort ? 0 : 1, c->fingerprint, (uint32_t)d->finished_slot, (uint32_t)symbol, 0, l->sequence + 1);
    int64_t start = d->finished_slot * c->seconds;
    l->units += cost(d, c);
    l->spent_until = start + c->seconds;
    l->sequence++;
    cap_add(d, start);
    if (d->drew_at < 0) {
        int64_t day = l->spent_until / DAY;
        if (day > l->day) {
            l->day = day;
            l->boots = 0;
        }
        l->boots++;
    }
    d->drew_at = d->ticks;
    d->rest_from = l->uptime + 1;
    if (l->waiting == 96) memmove(l->reports, l->reports + 1, sizeof l->reports[0] * (size_t)--l->waiting);
    to_hex(report, sizeof report, l->reports[l->waiting++]);
    if (commit(d)) return l->reports[l->waiting - 1];
    l->waiting--;
    d->paused = "storage";
    return NULL;
}

const char *device_close(Device *d, int64_t now) {
    look(d, now);
    if (!d->finished) return NULL;
    d->paused = obstacle(d, now);
    if (d->paused) {
        if (strcmp(d->paused, "rate")) d->finished = NULL;
        return NULL;
    }
    const char *report = release(d);
    d->finished = NULL;
    return report;
}
