/* tcp BYTES STREAMS UNDER_WAY SECONDS: a plain sender and receiver over loopback, what objects over TCP are held against.

   A process has 64 MiB of values of BYTES each, a thread for each connection, and nothing else: a put is received where it stays, a
   get is sent from there. In this process STREAMS threads have a connection each; each puts (gets) UNDER_WAY values, waits for all, and
   goes on with the next. Prints, as JSON, GB/s and the CPU seconds of both processes for each GiB, first of puts, then of gets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HELD_BYTES = 64 << 20, STREAMS_MAX = 64, UNDER_WAY_MAX = 64 };

/* What goes before a put's bytes and a get's, and alone as the answer to a put. */
struct head {
    uint32_t is_put, slot;
    uint64_t bytes;
};

static char *held;
static size_t bytes, slots, under_way;
static double seconds;
static struct sockaddr_in address;
static pthread_barrier_t barrier;

static void die(const char *what) { perror(what); exit(1); }

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

static double cpu_seconds(pid_t process) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &used)) die("a CPU clock");
    return used.tv_sec + used.tv_nsec * 1e-9;
}

static int take(int from, void *into, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t some = recv(from, (char *)into + done, length - done, 0);
        if (some <= 0) return 0;
        done += some;
    }
    return 1;
}

static void give(int to, struct iovec *pieces, int count) {
    while (count) {
        ssize_t some = writev(to, pieces, count);
        if (some < 0) die("writev");
        for (; count && (size_t)some >= pieces->iov_len; pieces++, count--) some -= pieces->iov_len;
        if (count) pieces->iov_base = (char *)pieces->iov_base + some, pieces->iov_len -= some;
    }
}

static void *serve(void *argument) {
    int stream = (int)(intptr_t)argument;
    struct head head;
    while (take(stream, &head, sizeof head)) {
        char *place = held + head.slot % slots * bytes;
        if (head.is_put && !take(stream, place, bytes)) break;
        struct iovec pieces[] = {{&head, sizeof head}, {place, bytes}};
        give(stream, pieces, head.is_put ? 1 : 2);
    }
    close(stream);
    return NULL;
}

static void listen_and_serve(int listener) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int stream = accept(listener, NULL, NULL), yes = 1;
        if (stream < 0) die("accept");
        setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        pthread_t thread;
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)stream);
        pthread_detach(thread);
    }
}

struct client {
    pthread_t thread;
    size_t number, streams, done[2];
};

/* One round: all are sent, then all answers are taken. */
static void all(int stream, int is_put, size_t first, char **values) {
    struct head heads[UNDER_WAY_MAX], answer;
    for (size_t at = 0; at < under_way; at++) {
        heads[at] = (struct head){is_put, first + at, bytes};
        struct iovec pieces[] = {{&heads[at], sizeof answer}, {values[0], bytes}};
        give(stream, pieces, is_put ? 2 : 1);
    }
    for (size_t at = 0; at < under_way; at++)
        if (!take(stream, &answer, sizeof answer) || (!is_put && !take(stream, values[at], bytes))) die("recv");
}

static void *run(void *argument) {
    struct client *client = argument;
    int stream = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (connect(stream, (void *)&address, sizeof address)) die("connect");
    setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    char *values[UNDER_WAY_MAX];
    for (size_t at = 0; at < under_way; at++) memset(values[at] = malloc(bytes), 'a' + client->number, bytes);
    size_t own = slots / client->streams, start = client->number * own, at = 0;
    for (; at < own; at += under_way) all(stream, 1, start + at, values);
    for (int is_put = 1; is_put >= 0; is_put--) {
        pthread_barrier_wait(&barrier);
        for (double begun = now(); now() - begun < seconds; client->done[is_put] += under_way, at += under_way)
            all(stream, is_put, start + at % own, values);
        pthread_barrier_wait(&barrier);
    }
    close(stream);
    return NULL;
}

int main(int count, char **words) {
    struct client clients[STREAMS_MAX] = {0};
    size_t streams = count == 5 ? strtoul(words[2], NULL, 10) : 0;
    if (!streams || streams > STREAMS_MAX) return fprintf(stderr, "tcp BYTES STREAMS UNDER_WAY SECONDS\n"), 2;
    bytes = strtoul(words[1], NULL, 10), under_way = strtoul(words[3], NULL, 10), seconds = atof(words[4]);
    if (!bytes || !under_way || under_way > UNDER_WAY_MAX) return fprintf(stderr, "too many under way\n"), 2;
    slots = HELD_BYTES / bytes < streams * under_way ? streams * under_way : HELD_BYTES / bytes;
    held = malloc(slots * bytes);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof address;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&address, length) || listen(listener, STREAMS_MAX)) die("listen");
    getsockname(listener, (void *)&address, &length);
    pid_t server = fork();
    if (server < 0) die("fork");
    if (!server) listen_and_serve(listener);
    pthread_barrier_init(&barrier, NULL, streams + 1);
    for (size_t at = 0; at < streams; at++) {
        clients[at].number = at, clients[at].streams = streams;
        pthread_create(&clients[at].thread, NULL, run, &clients[at]);
    }
    for (int is_put = 1; is_put >= 0; is_put--) {
        pthread_barrier_wait(&barrier);
        double begun = now(), used = cpu_seconds(server) + cpu_seconds(getpid()), done = 0;
        pthread_barrier_wait(&barrier);
        double took = now() - begun, cpu = cpu_seconds(server) + cpu_seconds(getpid()) - used;
        for (size_t at = 0; at < streams; at++) done += (double)clients[at].done[is_put] * bytes;
        printf("%s\"%s\": {\"gb_s\": %.3f, \"cpu_s_gib\": %.3f}%s", is_put ? "{" : ", ", is_put ? "put" : "get",
               done / took / 1e9, cpu / (done / (1 << 30)), is_put ? "" : "}\n");
    }
    for (size_t at = 0; at < streams; at++) pthread_join(clients[at].thread, NULL);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
