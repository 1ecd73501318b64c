/* fill OUT BYTES [IN...]: reads every IN in full, then writes BYTES pseudo-random bytes to OUT, 1 MiB at a time.
   The stream depends on the inputs and on OUT's last name, so that no two files are alike. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };
static uint64_t chunk[CHUNK / 8];

static void die(const char *what) { perror(what); exit(1); }

static uint64_t digest(const char *path) {
    int in = open(path, O_RDONLY);
    if (in < 0) die(path);
    uint64_t sum = 0;
    for (ssize_t got; (got = read(in, chunk, CHUNK)) != 0;) {
        if (got < 0) die(path);
        for (ssize_t i = 0; i < got / 8; i++) sum = sum * 31 + chunk[i];
    }
    close(in);
    return sum;
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: fill OUT BYTES [IN...]\n"); return 2; }
    const char *name = strrchr(argv[1], '/');
    uint64_t left = strtoull(argv[2], NULL, 10), state = 0x9e3779b97f4a7c15u;
    for (int i = 3; i < argc; i++) state ^= digest(argv[i]);
    for (name = name ? name : argv[1]; *name; name++) state = state * 1099511628211u + (unsigned char)*name;
    int out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (out < 0) die(argv[1]);
    while (left > 0) {
        for (int i = 0; i < CHUNK / 8; i++) { /* xorshift64: Marsaglia 2003 */
            state ^= state << 13; state ^= state >> 7; state ^= state << 17;
            chunk[i] = state;
        }
        size_t want = left < CHUNK ? left : CHUNK;
        for (size_t at = 0; at < want;) {
            ssize_t put = write(out, (char *)chunk + at, want - at);
            if (put < 0) die(argv[1]);
            at += put;
        }
        left -= want;
    }
    if (close(out)) die(argv[1]);
    return 0;
}
