/* A client in C, written from docs/wire.md. Its arguments are files of vectors: of reports, mechanisms (their
 * certificates), draws, and lives whose campaigns are not streams. It prints the names of the vectors whose expected
 * answer differs from its own, and how many vectors it played. It exits with 0 if no answer differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger.h"

static bool refused(const Json *expected) { return json_get(expected, "refused"); }

static void from_hex(const char *text, uint8_t *bytes) {
    for (unsigned value; sscanf(text, "%2x", &value) == 1; text += 2) *bytes++ = (uint8_t)value;
}

/* Reports of one symbol; the others are not played. */
static int play_report(const Json *given, const Json *expected) {
    const Json *values = json_get(given, "values");
    if (json_int(json_get(given, "kind")) != 0 && json_int(json_get(given, "kind")) != 1) return -1;
    uint8_t fingerprint[8], report[24];
    char made[49];
    const char *text = json_get(given, "fingerprint")->text;
    int64_t slot = json_int(json_get(given, "slot")), sequence = json_int(json_get(given, "sequence"));
    int64_t symbol = json_int(values->first), chain = json_int(json_get(given, "chain")), most = 0xffffffff;
    if (strlen(text) != 16 || json_count(values) != 1 || slot < 0 || slot > most || symbol < 0 || symbol > most || chain ||
        sequence < 1 || sequence > most)
        return refused(expected);
    from_hex(text, fingerprint);
    report_pack(report, (int)json_int(json_get(given, "kind")), fingerprint, (uint32_t)slot, (uint32_t)symbol, 0,
                (uint32_t)sequence);
    to_hex(report, sizeof report, made);
    return json_is(json_get(expected, "report"), made);
}

static bool known(const Json *mechanism) {
    static const char *const kinds[] = {"window", "square-wave", "hybrid", "table"};
    for (int i = 0; i < 4; i++)
        if (json_is(json_get(mechanism, "kind"), kinds[i])) return true;
    return false;
}

static int play_mechanism(const Json *given, const Json *expected) {
    Mechanism made;
    const Json *mechanism = json_get(given, "mechanism");
    if (!known(mechanism) || !mechanism_parse(mechanism, &made)) return refused(expected);
    int64_t a, b;
    mechanism_certificate(&made, &a, &b);
    const Json *certificate = json_get(expected, "certificate");
    return certificate && json_int(certificate->first) == a && json_int(json_at(certificate, 1)) == b;
}

static int play_draw(const Json *given, const Json *expected) {
    Mechanism made;
    Words words = {.seed = json_get(given, "seed")->text};
    int level;
    int64_t symbol;
    words_refill(&words);
    if (!mechanism_parse(json_get(given, "mechanism"), &made)) return refused(expected);
    if (!mechanism_draw(&made, json_int(json_get(given, "reading")), json_int(json_get(given, "theta")), &words, &level,
                        &symbol))
        return refused(expected);
    return !refused(expected) && json_int(json_get(expected, "level")) == level &&
           json_int(json_get(expected, "symbol")) == symbol && json_int(json_get(expected, "words")) == words.used;
}

static const Campaign *campaign_of(const char *body, const char *device) {
    static Campaign *seen[64];
    int count = 0;
    uint8_t digest[32], seed[128];
    for (; seen[count]; count++)
        if (!strcmp(seen[count]->body, body)) return seen[count];
    const Json *f = json_parse(body), *rule = json_get(f, "rule"), *schedule = json_get(f, "schedule");
    if (!json_is(json_get(rule, "kind"), "scalar")) return NULL;
    Campaign *c = calloc(1, sizeof *c);
    c->body = body;
    c->measure = json_get(f, "measure")->text;
    sha256(body, strlen(body), digest);
    memcpy(c->fingerprint, digest, sizeof c->fingerprint);
    from_hex(json_get(schedule, "seed")->text, seed);
    strcpy((char *)seed + 16, device);
    sha256(seed, 16 + strlen(device), c->digest);
    c->seconds = json_int(json_get(f, "slot_seconds"));
    c->cycle = json_int(json_get(f, "cycle"));
    c->epoch = json_int(json_get(f, "epoch"));
    c->first = c->epoch / c->seconds;
    c->last = json_int(json_get(f, "last_slot"));
    c->offset = json_int(json_get(f, "offset"));
    c->bound = json_int(json_get(f, "bound"));
    c->otherwise = json_int(json_get(f, "default"));
    c->stride = json_int(json_get(schedule, "stride"));
    c->cohort_stride = json_int(json_get(schedule, "cohort_stride"));
    c->ranges = json_get(rule, "ranges");
    int64_t a, b;
    if (!mechanism_parse(json_get(f, "cohort"), &c->cohort)) return NULL;
    mechanism_certificate(&c->cohort, &a, &b);
    c->units = epsilon_units(a, b);
    if (c->ranges->first) {
        if (!mechanism_parse(json_get(rule, "mechanism"), &c->report)) return NULL;
        mechanism_certificate(&c->report, &a, &b);
        uint64_t units = epsilon_units(a, b);
        c->units = units > c->units ? units : c->units;
    }
    return seen[count] = c;
}

static void policy_read(const Json *f, Policy *p) {
    p->slot_seconds = json_int(json_get(f, "slot_seconds"));
    p->period = json_int_or(f, "period_seconds", 86400);
    p->most = json_int_or(f, "reports_per_period", 48);
    p->rest = json_int_or(f, "rest_seconds", 0);
    p->lifetime = json_int_or(f, "lifetime", 0);
    p->boots_per_day = json_int_or(f, "boots_per_day", 4);
    p->write_seconds = json_int_or(f, "write_seconds", 60);
    p->one_shot = json_flag(f, "one_shot");
    p->by_ticks = !p->one_shot && !json_is(json_get(f, "rest_by"), "clock");
}

static bool same(const Json *expected, const char *made) {
    return made ? json_is(expected, made) : expected->type == 'w';
}

/* Lives without streams; the others are not played. */
static int play_life(const Json *given, const Json *expected) {
    Policy policy;
    policy_read(json_get(given, "policy"), &policy);
    const char *name = json_get(given, "device")->text;
    Words words = {.seed = json_get(given, "seed")->text};
    Device *device = calloc(1, sizeof *device);
    *device = (Device){.name = name, .policy = &policy, .words = &words};
    int64_t now = json_int(json_get(given, "now")), pause[2];
    bool running = false, right = true;
    const Json *answer = json_get(expected, "answers")->first;
    for (Json *step = json_get(given, "steps")->first; step; step = step->next, answer = answer->next) {
        int64_t seconds = json_int_or(step, "seconds", 0);
        now += seconds;
        device->ticks += 1000 * json_int_or(step, "ticks", seconds);
        const Json *lose = json_get(step, "lose"), *paused = json_get(step, "pause"), *accept = json_get(step, "accept");
        for (Json *each = lose ? lose->first : NULL; each; each = each->next) {
            if (json_is(each, "ledger")) device->file = NULL;
            if (json_is(each, "begun")) device->begun = false;
        }
        if (json_get(step, "broken")) device->broken = json_flag(step, "broken");
        if (paused) {
            pause[0] = json_int(paused->first);
            pause[1] = json_int(json_at(paused, 1));
            device->pause = pause;
        }
        if (!running || json_get(step, "boot")) device_boot(device);
        running = true;
        if (accept) {
            const Campaign *campaign = campaign_of(json_get(accept, "body")->text, name);
            if (!campaign) return -1;
            bool new = device_accept(device, campaign, json_int(json_get(accept, "issued_at")), now);
            right = right && json_flag(answer, "new") == new;
        }
        const Json *observe = json_get(step, "observe");
        for (Json *each = observe ? observe->first : NULL; each; each = each->next)
            device_observe(device, json_int(each), now);
        if (json_get(step, "close")) {
            const char *report = device_close(device, now);
            right = right && same(json_get(answer, "report"), report) && same(json_get(answer, "paused"), device->paused);
        }
        if (json_get(step, "acked")) {
            const Json *acked = json_at(json_get(expected, "answers"), (int)json_int(json_get(step, "acked")));
            Ledger *l = &device->ledger;
            for (int i = 0; i < l->waiting; i++)
                if (json_is(json_get(acked, "report"), l->reports[i]))
                    memmove(l->reports + i, l->reports + i + 1, sizeof l->reports[0] * (size_t)(--l->waiting - i));
        }
        right = right && json_int(json_get(answer, "waiting")) == device->ledger.waiting;
    }
    return right;
}

int main(int count, char **paths) {
    static const struct {
        const char *kind;
        int (*play)(const Json *given, const Json *expected);
    } players[] = {{"reports", play_report}, {"mechanisms", play_mechanism}, {"draws", play_draw}, {"lives", play_life}};
    int differences = 0;
    for (int i = 1; i < count; i++) {
        const Json *file = json_read(paths[i]);
        int played = 0, kind = 0;
        while (!json_is(json_get(file, "kind"), players[kind].kind))
            if (++kind == sizeof players / sizeof *players) return 2;
        for (Json *each = json_get(file, "vectors")->first; each; each = each->next) {
            int right = players[kind].play(json_get(each, "given"), json_get(each, "expected"));
            played += right >= 0;
            if (right == 0) {
                printf("%s: %s\n", paths[i], json_get(each, "name")->text);
                differences++;
            }
        }
        printf("%s: %d vectors\n", paths[i], played);
    }
    return differences ? 1 : 0;
}
