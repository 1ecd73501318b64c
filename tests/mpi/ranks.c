// Ranks of an MPI program write one file together and read the bytes of others, by MPI-IO.
//
//     mpiexec -n 4 ranks DIRECTORY
//
// Six files, each written in another way, and read back by other ranks than the writers:
//     independent   each rank its own blocks, contiguous
//     collective    all ranks together, block by block in turns
//     strided       each rank every n-th piece, through a view of the file, collectively
//     sieved        the same, independently: MPI reads the bytes between a rank's pieces, modifies
//                   them and writes them under a lock
//     ordered       a shared file pointer, one rank after the other
//     started       each rank its own blocks, by nonblocking calls that it waits for at the end
// Prints `NAME BYTES ok` for each; otherwise prints which byte is wrong and exits with 1.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 3001, PIECES = 31, BLOCK = PIECE * PIECES };

static int rank, ranks;

static void must(int error, const char *what) {
    if (error == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(error, text, &length);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Byte `at` of the bytes that a rank writes.
static unsigned char byte_of(int writer, long at) { return (unsigned char)(writer * 71 + at * 7 + at / 251); }

static void fill(unsigned char *bytes, int writer) {
    for (long at = 0; at < BLOCK; at++) bytes[at] = byte_of(writer, at);
}

static void check(const unsigned char *bytes, int writer, const char *name) {
    for (long at = 0; at < BLOCK; at++) {
        if (bytes[at] == byte_of(writer, at)) continue;
        fprintf(stderr, "rank %d: %s: byte %ld of rank %d is %d, not %d\n", rank, name, at, writer, bytes[at], byte_of(writer, at));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static MPI_File opened(const char *folder, const char *name) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    must(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), path);
    return file;
}

// Makes all earlier writes visible to all ranks (MPI 4.0, 14.6.1: sync, barrier, sync).
static void settled(MPI_File file) {
    must(MPI_File_sync(file), "sync");
    must(MPI_Barrier(MPI_COMM_WORLD), "barrier");
    must(MPI_File_sync(file), "sync");
}

static void told(MPI_File file, const char *name) {
    MPI_Offset size;
    must(MPI_File_get_size(file, &size), "size");
    must(MPI_File_close(&file), "close");
    must(MPI_Barrier(MPI_COMM_WORLD), "barrier");
    if (rank == 0) printf("%s %lld ok\n", name, (long long)size);
}

static void independent(const char *folder, unsigned char *mine, unsigned char *others, int other) {
    MPI_File file = opened(folder, "independent");
    must(MPI_File_write_at(file, (MPI_Offset)rank * BLOCK, mine, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "write_at");
    settled(file);
    must(MPI_File_read_at(file, (MPI_Offset)other * BLOCK, others, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "read_at");
    check(others, other, "independent");
    told(file, "independent");
}

static void collective(const char *folder, unsigned char *mine, unsigned char *others, int other) {
    MPI_File file = opened(folder, "collective");
    for (int at = 0; at < PIECES; at++) {
        MPI_Offset place = ((MPI_Offset)at * ranks + rank) * PIECE;
        must(MPI_File_write_at_all(file, place, mine + (long)at * PIECE, PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "write_at_all");
    }
    settled(file);
    for (int at = 0; at < PIECES; at++) {
        MPI_Offset place = ((MPI_Offset)at * ranks + other) * PIECE;
        must(MPI_File_read_at_all(file, place, others + (long)at * PIECE, PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "read_at_all");
    }
    check(others, other, "collective");
    told(file, "collective");
}

// Sets a file view of every n-th piece, starting at the piece of rank `of`.
static void look_at(MPI_File file, int of) {
    MPI_Datatype pieces;
    must(MPI_Type_vector(PIECES, PIECE, PIECE * ranks, MPI_BYTE, &pieces), "type");
    must(MPI_Type_commit(&pieces), "type");
    must(MPI_File_set_view(file, (MPI_Offset)of * PIECE, MPI_BYTE, pieces, "native", MPI_INFO_NULL), "view");
    must(MPI_Type_free(&pieces), "type");
}

static void strided(const char *folder, unsigned char *mine, unsigned char *others, int other) {
    MPI_File file = opened(folder, "strided");
    look_at(file, rank);
    must(MPI_File_write_all(file, mine, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "write_all");
    settled(file);
    look_at(file, other);
    must(MPI_File_read_all(file, others, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "read_all");
    check(others, other, "strided");
    told(file, "strided");
}

static void sieved(const char *folder, unsigned char *mine, unsigned char *others, int other) {
    MPI_File file = opened(folder, "sieved");
    look_at(file, rank);
    must(MPI_File_write(file, mine, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    settled(file);
    look_at(file, other);
    must(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
    must(MPI_File_read(file, others, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    check(others, other, "sieved");
    told(file, "sieved");
}

static void ordered(const char *folder, unsigned char *mine, unsigned char *others, int other) {
    MPI_File file = opened(folder, "ordered");
    must(MPI_File_write_ordered(file, mine, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "write_ordered");
    settled(file);
    must(MPI_File_read_at(file, (MPI_Offset)other * BLOCK, others, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "read_at");
    check(others, other, "ordered");
    told(file, "ordered");
}

static void started(const char *folder, unsigned char *mine, unsigned char *others, int other) {
    MPI_File file = opened(folder, "started");
    MPI_Request requests[PIECES];
    for (int at = 0; at < PIECES; at++) {
        MPI_Offset place = ((MPI_Offset)at * ranks + rank) * PIECE;
        must(MPI_File_iwrite_at(file, place, mine + (long)at * PIECE, PIECE, MPI_BYTE, &requests[at]), "iwrite_at");
    }
    for (int at = 0; at < PIECES; at++) must(MPI_Wait(&requests[at], MPI_STATUS_IGNORE), "wait");
    settled(file);
    for (int at = 0; at < PIECES; at++) {
        MPI_Offset place = ((MPI_Offset)at * ranks + other) * PIECE;
        must(MPI_File_iread_at(file, place, others + (long)at * PIECE, PIECE, MPI_BYTE, &requests[at]), "iread_at");
    }
    for (int at = 0; at < PIECES; at++) must(MPI_Wait(&requests[at], MPI_STATUS_IGNORE), "wait");
    check(others, other, "started");
    told(file, "started");
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 2) {
        if (rank == 0) fprintf(stderr, "usage: ranks FOLDER\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    unsigned char *mine = malloc(BLOCK), *others = malloc(BLOCK);
    fill(mine, rank);
    // The rank half of the ranks away: on the other host, if there are two.
    int other = (rank + ranks / 2) % ranks;
    void (*ways[])(const char *, unsigned char *, unsigned char *, int) = {independent, collective, strided, sieved, ordered, started};
    for (int way = 0; way < 6; way++) {
        memset(others, 0, BLOCK);
        ways[way](words[1], mine, others, other);
    }
    // The hosts that took part, so that a test can check that there were several.
    char host[MPI_MAX_PROCESSOR_NAME];
    int length;
    MPI_Get_processor_name(host, &length);
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) printf("rank %d on %s\n", rank, host), fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}
