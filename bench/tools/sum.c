/* sum OUT IN...: reads every IN in full and writes "SUM BYTES" over all of them to OUT. An IN of the form @FILE is a list. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };
static uint64_t chunk[CHUNK / 8], sum, bytes;

static void add(const char *path) {
    int in = open(path, O_RDONLY);
    if (in < 0) { perror(path); exit(1); }
    for (ssize_t got; (got = read(in, chunk, CHUNK)) != 0;) {
        if (got < 0) { perror(path); exit(1); }
        for (ssize_t i = 0; i < got / 8; i++) sum += chunk[i];
        bytes += got;
    }
    close(in);
}

static void add_list(const char *path) {
    char line[4096];
    FILE *list = fopen(path, "r");
    if (!list) { perror(path); exit(1); }
    while (fgets(line, sizeof line, list)) { line[strcspn(line, "\n")] = 0; add(line); }
    fclose(list);
}

int main(int argc, char **argv) {
    if (argc < 2) { fprintf(stderr, "usage: sum OUT IN...\n"); return 2; }
    for (int i = 2; i < argc; i++) { if (*argv[i] == '@') add_list(argv[i] + 1); else add(argv[i]); }
    FILE *out = fopen(argv[1], "w");
    if (!out) { perror(argv[1]); return 1; }
    fprintf(out, "%" PRIu64 " %" PRIu64 "\n", sum, bytes);
    return fclose(out) ? 1 : 0;
}
