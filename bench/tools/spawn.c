/* spawn COUNT PROGRAM [ARG...]: fork, exec and wait, COUNT times one after the other: the floor under any chain of tasks.
   In ARGs a % becomes the number of the round, and a ^ that of the round before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *numbered(const char *text, long round) {
    char *filled = malloc(strlen(text) * 12 + 1), *end = filled;
    for (; *text; text++) {
        if (*text == '%') end += sprintf(end, "%ld", round);
        else if (*text == '^') end += sprintf(end, "%ld", round - 1);
        else *end++ = *text;
    }
    *end = 0;
    return filled;
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: spawn COUNT PROGRAM [ARG...]\n"); return 2; }
    long count = atol(argv[1]);
    for (long round = 0; round < count; round++) {
        char *args[64];
        int used = 0;
        for (int i = 2; i < argc && used < 63; i++) args[used++] = numbered(argv[i], round);
        args[used] = NULL;
        pid_t child = fork();
        if (child < 0) { perror("fork"); return 1; }
        if (child == 0) { execvp(args[0], args); perror(args[0]); _exit(127); }
        int status;
        if (waitpid(child, &status, 0) < 0 || status != 0) { fprintf(stderr, "round %ld failed\n", round); return 1; }
        while (used > 0) free(args[--used]);
    }
    return 0;
}
