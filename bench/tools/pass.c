/* pass OUT [IN]: copies IN (empty without one) to OUT: the smallest task that reads a file and writes one. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char buffer[4096];
    ssize_t got = 0;
    if (argc < 2) return 2;
    if (argc > 2) {
        int in = open(argv[2], O_RDONLY);
        if (in < 0 || (got = read(in, buffer, sizeof buffer)) < 0) { perror(argv[2]); return 1; }
        close(in);
    }
    int out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (out < 0 || write(out, buffer, got) != got) { perror(argv[1]); return 1; }
    return close(out) ? 1 : 0;
}
