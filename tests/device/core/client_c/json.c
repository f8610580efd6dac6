#include "json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *at;

static void blank(void) {
    while (isspace((unsigned char)*at)) at++;
}

static char *copy(const char *from, size_t size) {
    char *made = malloc(size + 1);
    memcpy(made, from, size);
    made[size] = 0;
    return made;
}

/* A text; of the escapes it knows \" \\ \/ \n and \u00XX, and keeps the others as they are. */
static char *text(void) {
    char *made = malloc(strlen(at) + 1), *to = made;
    for (at++; *at != '"'; at++) {
        if (*at == '\\') {
            at++;
            if (*at == 'n') *to++ = '\n';
            else if (*at == '"' || *at == '\\' || *at == '/') *to++ = *at;
            else if (*at == 'u' && at[1] == '0' && at[2] == '0') {
                char digits[3] = {at[3], at[4], 0};
                *to++ = (char)strtol(digits, NULL, 16);
                at += 4;
            } else {
                *to++ = '\\';
                *to++ = *at;
            }
        } else *to++ = *at;
    }
    at++;
    *to = 0;
    return made;
}

static Json *value(void) {
    Json *made = calloc(1, sizeof *made);
    blank();
    if (*at == '{' || *at == '[') {
        made->type = *at;
        char end = *at == '{' ? '}' : ']';
        Json **last = &made->first;
        at++;
        for (blank(); *at != end; blank()) {
            char *name = NULL;
            if (*at == ',') {
                at++;
                continue;
            }
            if (made->type == '{') {
                name = text();
                blank();
                at++; /* the colon */
            }
            *last = value();
            (*last)->name = name;
            last = &(*last)->next;
        }
        at++;
    } else if (*at == '"') {
        made->type = '"';
        made->text = text();
    } else {
        const char *start = at;
        while (*at && !strchr(",]} \n", *at)) at++;
        made->type = isalpha((unsigned char)*start) ? 'w' : 'n';
        made->text = copy(start, (size_t)(at - start));
    }
    return made;
}

Json *json_parse(const char *given) {
    const char *before = at;
    at = given;
    Json *made = value();
    at = before;
    return made;
}

Json *json_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *content = malloc(size + 1);
    if (fread(content, 1, size, file) != size) exit(2);
    content[size] = 0;
    fclose(file);
    Json *made = json_parse(content);
    free(content);
    return made;
}

Json *json_get(const Json *object, const char *name) {
    for (Json *each = object->first; each; each = each->next)
        if (!strcmp(each->name, name)) return each;
    return NULL;
}

Json *json_at(const Json *list, int index) {
    Json *each = list->first;
    while (each && index--) each = each->next;
    return each;
}

int json_count(const Json *list) {
    int count = 0;
    for (Json *each = list->first; each; each = each->next) count++;
    return count;
}

bool json_is(const Json *given, const char *word) { return given && given->text && !strcmp(given->text, word); }

int64_t json_int(const Json *given) { return strtoll(given->text, NULL, 10); }

int64_t json_int_or(const Json *object, const char *name, int64_t otherwise) {
    Json *found = json_get(object, name);
    return found ? json_int(found) : otherwise;
}

bool json_flag(const Json *object, const char *name) { return json_is(json_get(object, name), "true"); }
