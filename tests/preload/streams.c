/* Operations on stdio streams, reported on the original standard error: streams WHAT DIRECTORY
 * OTHER. Files of the directory have set-id bits, so the preload library requests their bytes from
 * the nodes. OTHER is a file of the host that begins with a line. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static int report;
#define SAY(...) dprintf(report, __VA_ARGS__)

/* Creates a file with this name and text; returns its descriptor. */
static int made(const char *name, const char *text)
{
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, text, strlen(text)) < 0 || fchmod(file, 04755) < 0)
        perror(name), exit(1);
    close(file);
    return open(name, O_RDWR);
}

static void show(const char *name)
{
    char text[200] = "";
    int file = open(name, O_RDONLY);
    ssize_t got = read(file, text, sizeof text - 1);
    SAY("%s %zd: %s\n", name, got, text);
    close(file);
}

static void line(FILE *stream)
{
    char text[100] = "";
    char *got = fgets(text, sizeof text, stream);
    SAY("line %d eof %d error %d: %s", got != NULL, feof(stream) != 0, ferror(stream) != 0, text);
    SAY(".\n");
}

static void reopened(const char *other)
{
    close(made("a", "one\ntwo\n"));
    FILE *first = fopen("a", "r+"), *stream = first;
    line(stream);
    SAY("same %d\n", (stream = freopen(NULL, "r", stream)) == first);
    line(stream);
    SAY("puts %d error %d\n", fputs("no", stream) >= 0, ferror(stream) != 0);
    SAY("same %d\n", (stream = freopen(NULL, "a", stream)) == first);
    SAY("at %ld\n", ftell(stream));
    fputs("three\n", stream);
    SAY("at %ld\n", ftell(stream));
    SAY("same %d\n", (stream = freopen(other, "r", stream)) == first);
    show("a");
    line(stream);
    close(made("b", "other\n"));
    SAY("same %d\n", (stream = freopen("b", "r+", stream)) == first);
    line(stream);
    fseek(stream, 0, SEEK_SET);
    fputs("O", stream);
    SAY("same %d\n", (stream = freopen("b", "w", stream)) == first);
    SAY("closed %d\n", fclose(stream));
    show("b");
}

static void standard(const char *other)
{
    char line_of[100];
    close(made("a", "one\ntwo\n"));
    close(made("b", "long before\n"));
    SAY("in %d\n", freopen("a", "r", stdin) == stdin);
    SAY("%d %s", scanf("%99s", line_of), line_of);
    SAY(" number %d\n", fileno(stdin));
    SAY("out %d\n", freopen("b", "w", stdout) == stdout);
    printf("said\n");
    SAY("number %d\n", fileno(stdout));
    SAY("out %d\n", freopen(NULL, "a", stdout) == stdout);
    show("b");
    printf("more\n");
    SAY("at %ld\n", ftell(stdout));
    SAY("in %d\n", freopen(other, "r", stdin) == stdin);
    line(stdin);
    SAY("in %d\n", freopen("b", "r", stdin) == stdin);
    line(stdin);
    fclose(stdout);
    SAY("open %d\n", fcntl(1, F_GETFD));
    show("b");
}

static void opened(const char *other)
{
    (void)other;
    int file = made("a", "four");
    FILE *stream = fopen("a", "a");
    SAY("at %ld\n", ftell(stream));
    fputs("5", stream);
    fclose(stream);
    stream = fopen("a", "a+");
    line(stream);
    fclose(stream);
    stream = fdopen(open("a", O_WRONLY), "a");
    SAY("at %ld append %d\n", ftell(stream), (fcntl(fileno(stream), F_GETFL) & O_APPEND) != 0);
    fputs("6", stream);
    SAY("closed %d\n", fclose(stream));
    const char *modes[] = {"w", "r+", "a", "r", "q", ""};
    for (int at = 0; at < 6; at++) {
        int only = open("a", O_RDONLY);
        errno = 0;
        stream = fdopen(only, modes[at]);
        SAY("%s %d %d\n", modes[at], stream != NULL, stream ? 0 : errno);
    }
    SAY("%d\n", fdopen(open("a", O_WRONLY), "r") != NULL);
    show("a");
    close(file);
}

static long size(int file)
{
    struct stat found;
    return fstat(file, &found) ? -1 : (long)found.st_size;
}

static void kept(const char *other)
{
    int file = made("a", ""), again = open(other, O_RDONLY), null = open("/dev/null", O_WRONLY);
    FILE *noted = stdout;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("before ");
    dup2(file, 1);
    printf("line\npart");
    SAY("by lines %ld\n", size(file));
    fflush(stdout);
    SAY("flushed %ld\n", size(file));
    setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
    printf("of both");
    pid_t child = fork();
    if (child == 0) {
        dup2(null, 1);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SAY("not by the child %ld\n", size(file));
    noted = stdout;
    dup2(null, 1);
    fputs("nowhere", noted);
    fflush(noted);
    fflush(stdout);
    SAY("elsewhere now %ld\n", size(file));
    close(1);
    SAY("number %d\n", open("a", O_WRONLY | O_APPEND));
    printf("end");
    fflush(stdout);
    show("a");
    close(again);
}

static void limited(const char *other)
{
    (void)other;
    int file = made("a", "four");
    struct rlimit limit = {.rlim_cur = 6, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    pid_t child = fork();
    if (child == 0) {
        pwrite(file, "x", 1, 6);
        _exit(0);
    }
    int ended;
    waitpid(child, &ended, 0);
    SAY("signal %d\n", WIFSIGNALED(ended) ? WTERMSIG(ended) : 0);
    signal(SIGXFSZ, SIG_IGN);
    SAY("wrote %zd\n", pwrite(file, "1234567890", 10, 2));
    errno = 0;
    SAY("wrote %zd", pwrite(file, "x", 1, 6));
    SAY(" %d\n", errno);
    int append = open("a", O_WRONLY | O_APPEND);
    SAY("wrote %zd", write(append, "x", 1));
    SAY(" %d\n", errno);
    limit.rlim_cur = 8;
    setrlimit(RLIMIT_FSIZE, &limit);
    SAY("wrote %zd\n", write(append, "xyz", 3));
    show("a");
}

/* dprintf(3) of programs that are compiled with fortification checks. */
extern int __dprintf_chk(int, int, const char *, ...);

/* Arguments in registers of both kinds, and on the stack. */
static void printed(const char *other)
{
    int file = made("f", "");
    int length = dprintf(file, "%d %s %.1f %d %.2f %ld %c %.3f\n", 1, "two", 3.5, 4, 5.25, 6L, '7', 8.125);
    length += dprintf(file, "%d %d %d %d %d %d %g %g %g %g %g %g %g %g %g\n", 1, 2, 3, 4, 5, 6, .1, .2, .3, .4, .5, .6, .7, .8, .9);
    length += __dprintf_chk(file, 1, "%s %g %d %d %d %d\n", "checked", 1.5, 1, 2, 3, 4) + dprintf(file, "%s", "");
    SAY("%d\n", length);
    close(file);
    show("f");
    file = open(other, O_RDONLY);
    SAY("%d %s\n", dprintf(file, "no"), strerror(errno));
    close(file);
    file = open("f", O_RDONLY);
    SAY("%d %s\n", dprintf(file, "no"), strerror(errno));
    close(file);
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*run)(const char *); } all[] = {
        {"reopened", reopened}, {"standard", standard}, {"opened", opened}, {"kept", kept}, {"limited", limited}, {"printed", printed},
    };
    report = dup(2);
    if (count != 4 || chdir(words[2]))
        return 2;
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        if (!strcmp(all[at].name, words[1]))
            return all[at].run(words[3]), 0;
    return 2;
}
