/* A reader of JSON, enough for the files of docs/vectors. */
#ifndef JSON_H
#define JSON_H
#include <stdbool.h>
#include <stdint.h>

typedef struct Json {
    char type; /* { [ " n: number, w: true, false or null */
    char *text; /* of a text, a number or a word */
    char *name; /* in an object */
    struct Json *first, *next;
} Json;

Json *json_read(const char *path);
Json *json_parse(const char *text);
Json *json_get(const Json *object, const char *name); /* NULL where there is none */
Json *json_at(const Json *list, int index);
int json_count(const Json *list);
bool json_is(const Json *value, const char *word);
int64_t json_int(const Json *value);
int64_t json_int_or(const Json *object, const char *name, int64_t otherwise);
bool json_flag(const Json *object, const char *name);
#endif
