/* calls VERB ...: the calls that the storage benchmarks time, and nothing else; prints the seconds of each phase as JSON.

   write FILE BYTES REQUEST         a new file, from open to close
   overwrite FILE BYTES REQUEST     the same over what is there
   read FILE BYTES REQUEST
   mapread FILE BYTES REQUEST       mapped, and copied out of the mapping a request at a time
   random_read FILE BYTES COUNT     COUNT reads of 4 KiB at random places
   random_map FILE BYTES COUNT      the same out of a mapping
   names DIR COUNT                  create, stat, fill (4 KiB), open and read, rename, unlink of COUNT files in DIR */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const char *separator = "{";

static void die(const char *what) { perror(what); exit(1); }

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

/* Prints what a phase took, and begins the next one. */
static double phase(const char *name, double since) {
    printf("%s\"%s\": %.9f", separator, name, now() - since);
    separator = ", ";
    return now();
}

static void *buffer(size_t bytes) {
    void *made;
    if (posix_memalign(&made, PAGE, bytes)) die("memory");
    memset(made, 'b', bytes); /* touched, so that no fault is counted */
    return made;
}

static int opened(const char *path, int flags) {
    int file = open(path, flags, 0644);
    if (file < 0) die(path);
    return file;
}

static void move(const char *verb, const char *path, uint64_t bytes, size_t request) {
    char *piece = buffer(request);
    int writes = *verb != 'r';
    double start = now();
    int file = opened(path, *verb == 'w' ? O_WRONLY | O_CREAT | O_EXCL : writes ? O_WRONLY : O_RDONLY);
    for (uint64_t at = 0; at < bytes;) {
        ssize_t done = writes ? write(file, piece, request) : read(file, piece, request);
        if (done <= 0) die(path);
        at += done;
    }
    if (close(file)) die(path);
    phase(verb, start);
}

static void mapread(const char *path, uint64_t bytes, size_t request) {
    char *piece = buffer(request);
    double start = now();
    int file = opened(path, O_RDONLY);
    char *view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (view == MAP_FAILED) die(path);
    for (uint64_t at = 0; at + request <= bytes; at += request) memcpy(piece, view + at, request);
    munmap(view, bytes);
    close(file);
    phase("mapread", start);
}

static void random_pages(const char *verb, const char *path, uint64_t bytes, uint64_t count) {
    char piece[PAGE], *view = NULL;
    uint64_t state = 0x9e3779b97f4a7c15u, pages = bytes / PAGE;
    int file = opened(path, O_RDONLY), mapped = strcmp(verb, "random_map") == 0;
    if (mapped) {
        view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
        if (view == MAP_FAILED) die(path);
    }
    double start = now();
    while (count--) {
        state ^= state << 13; state ^= state >> 7; state ^= state << 17; /* xorshift64: Marsaglia 2003 */
        uint64_t at = state % pages * PAGE;
        if (mapped) memcpy(piece, view + at, PAGE);
        else if (pread(file, piece, PAGE, at) != PAGE) die(path);
        __asm__ volatile("" : : "r"(piece) : "memory"); /* the copy is not left out */
    }
    phase(verb, start);
}

static void names(const char *folder, long count) {
    char page[PAGE], one[64], other[64];
    struct stat status;
    memset(page, 'p', PAGE);
    if (chdir(folder)) die(folder);
    double start = now();
    for (long i = 0; i < count; i++) {
        sprintf(one, "f%07ld", i);
        close(opened(one, O_WRONLY | O_CREAT | O_EXCL));
    }
    start = phase("create", start);
    for (long i = 0; i < count; i++) {
        sprintf(one, "f%07ld", i);
        if (stat(one, &status)) die(one);
    }
    start = phase("stat", start);
    for (long i = 0; i < count; i++) {
        sprintf(one, "f%07ld", i);
        int file = opened(one, O_WRONLY);
        if (write(file, page, PAGE) != PAGE || close(file)) die(one);
    }
    start = phase("fill", start);
    for (long i = 0; i < count; i++) {
        sprintf(one, "f%07ld", i);
        int file = opened(one, O_RDONLY);
        if (read(file, page, PAGE) != PAGE) die(one);
        close(file);
    }
    start = phase("open+read", start);
    for (long i = 0; i < count; i++) {
        sprintf(one, "f%07ld", i);
        sprintf(other, "g%07ld", i);
        if (rename(one, other)) die(one);
    }
    start = phase("rename", start);
    for (long i = 0; i < count; i++) {
        sprintf(other, "g%07ld", i);
        if (unlink(other)) die(other);
    }
    phase("unlink", start);
}

int main(int argc, char **argv) {
    if (argc < 4) { fprintf(stderr, "usage: calls VERB PATH NUMBER [NUMBER]\n"); return 2; }
    uint64_t first = strtoull(argv[3], NULL, 10), second = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    if (strcmp(argv[1], "names") == 0) names(argv[2], first);
    else if (strcmp(argv[1], "mapread") == 0) mapread(argv[2], first, second);
    else if (strncmp(argv[1], "random", 6) == 0) random_pages(argv[1], argv[2], first, second);
    else move(argv[1], argv[2], first, second);
    printf("}\n");
    return 0;
}
