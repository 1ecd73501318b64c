// Asynchronous reads and writes (aio(7)) of a file; prints the outcome of each, which must be the
// same on any file system.
//
//     asynchronous DIRECTORY
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 70000 };

static char written[BYTES], found[BYTES];
static sem_t called;
static int said;

static void thread(union sigval value) {
    said = value.sival_int;
    sem_post(&called);
}

static struct aiocb operation(int file, void *bytes, size_t length, off_t offset) {
    struct aiocb made = {.aio_fildes = file, .aio_buf = bytes, .aio_nbytes = length, .aio_offset = offset};
    made.aio_sigevent.sigev_notify = SIGEV_NONE;
    return made;
}

// Prints the outcome of an operation after it has completed.
static void told(const char *what, int begun, struct aiocb *of) {
    const struct aiocb *list[] = {NULL, of};
    if (begun != 0) {
        printf("%s: refused: %s\n", what, strerror(errno));
        return;
    }
    while (aio_error(of) == EINPROGRESS) aio_suspend(list, 2, NULL);
    int error = aio_error(of);
    printf("%s: %zd %s, cancel %d\n", what, aio_return(of), strerror(error), aio_cancel(of->aio_fildes, of));
}

static void lists(int file) {
    struct aiocb one = operation(file, "one", 3, 0), other = operation(file, "other", 5, 3), none = operation(file, NULL, 3, 0);
    struct aiocb back = operation(file, found, 8, 0), wrong = operation(file, found, 8, -1);
    one.aio_lio_opcode = other.aio_lio_opcode = LIO_WRITE;
    back.aio_lio_opcode = wrong.aio_lio_opcode = LIO_READ;
    none.aio_lio_opcode = LIO_NOP;
    struct aiocb *writes[] = {&one, NULL, &none, &other}, *reads[] = {&back, &wrong};
    printf("list: %d\n", lio_listio(LIO_WAIT, writes, 4, NULL));
    told("one", 0, &one);
    told("other", 0, &other);
    int outcome = lio_listio(LIO_WAIT, reads, 2, NULL);
    printf("list with a wrong one: %d %s, %.8s\n", outcome, strerror(errno), found);
    told("wrong", 0, &wrong);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = thread, .sigev_value.sival_int = 7};
    printf("list to be told of: %d\n", lio_listio(LIO_NOWAIT, writes, 4, &event));
    sem_wait(&called);
    printf("told %d, %zd and %zd\n", said, aio_return(&one), aio_return(&other));
    outcome = lio_listio(77, writes, 4, NULL);
    printf("list of no mode: %d %s\n", outcome, strerror(errno));
}

static void tellings(int file) {
    sigset_t set;
    siginfo_t info;
    struct aiocb of = operation(file, "signal", 6, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    of.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 5};
    int begun = aio_write(&of), signal = sigwaitinfo(&set, &info);
    printf("signal %d, %s, %d\n", signal == SIGUSR1, info.si_code == SI_ASYNCIO ? "of aio" : "of another", info.si_value.sival_int);
    told("with a signal", begun, &of);
    of.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = thread, .sigev_value.sival_int = 6};
    begun = aio_write(&of);
    sem_wait(&called);
    printf("thread %d\n", said);
    told("with a thread", begun, &of);
}

int main(int count, char **words) {
    if (count != 2 || chdir(words[1]) != 0) return 2;
    sem_init(&called, 0, 0);
    for (int at = 0; at < BYTES; at++) written[at] = (char)(at * 7 + at / 251);
    int file = open("f", O_CREAT | O_RDWR, 0644), reading = open("f", O_RDONLY), appending = open("f", O_WRONLY | O_APPEND);
    struct aiocb of = operation(file, written, BYTES, 10);
    told("write", aio_write(&of), &of);
    of = operation(reading, found, BYTES, 10);
    told("read", aio_read(&of), &of);
    printf("same: %d\n", memcmp(written, found, BYTES) == 0);
    of = operation(file, found, BYTES, BYTES);
    told("read over the end", aio_read(&of), &of);
    of = operation(reading, written, 3, 0);
    told("write without the right", aio_write(&of), &of);
    told("sync without the right", aio_fsync(O_SYNC, &of), &of);
    of = operation(appending, "end", 3, 0);
    told("append", aio_write(&of), &of);
    printf("size %ld, at %ld\n", (long)lseek(reading, 0, SEEK_END), (long)lseek(file, 0, SEEK_CUR));
    of = operation(file, NULL, 0, 0);
    told("sync", aio_fsync(O_DSYNC, &of), &of);
    told("sync of another kind", aio_fsync(O_RDWR, &of), &of);
    of = operation(file, written, 3, 0);
    of.aio_reqprio = 21;
    told("far behind", aio_write(&of), &of);
    of = operation(file, written, 3, -1);
    told("before the start", aio_write(&of), &of);
    of = operation(-1, written, 3, 0);
    told("nowhere", aio_write(&of), &of);
    printf("cancel all: %d\n", aio_cancel(file, NULL));
    tellings(file);
    lists(file);
    return 0;
}
