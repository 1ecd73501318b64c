/* touch PATH...: asks for the attributes of each path, and ends: the least that a program does with a pool. */
#include <sys/stat.h>

int main(int argc, char **argv) {
    struct stat status;
    for (int i = 1; i < argc; i++)
        if (stat(argv[i], &status)) return 1;
    return 0;
}
