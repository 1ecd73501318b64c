/* copy BYTES REQUEST: copies so many bytes out of memory a request at a time into one place: what a read can cost at least. Seconds, as JSON. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: copy BYTES REQUEST\n"); return 2; }
    size_t bytes = strtoull(argv[1], NULL, 10), request = strtoull(argv[2], NULL, 10);
    char *from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *into;
    if (from == MAP_FAILED || posix_memalign((void **)&into, 4096, request)) { perror("memory"); return 1; }
    madvise(from, bytes, MADV_HUGEPAGE);
    memset(from, 'b', bytes); /* touched, so that no fault is counted */
    memset(into, 'b', request);
    double start = now();
    for (size_t at = 0; at + request <= bytes; at += request) {
        memcpy(into, from + at, request);
        __asm__ volatile("" : : "r"(into) : "memory"); /* the copy is not left out */
    }
    printf("{\"copy\": %.9f}\n", now() - start);
    return 0;
}
