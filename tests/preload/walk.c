/* Prints the calls of nftw for a tree, sorted by path if the order is the directory's: walk PATH
 * FLAGS. */
#define _GNU_SOURCE
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t start;

static int tell(const char *path, const struct stat *found, int kind, struct FTW *told)
{
    char here[PATH_MAX] = "";
    (void)found;
    if (!getcwd(here, sizeof here))
        perror("getcwd");
    printf("%s %d %d %s in .%s\n", path, kind, told->level, path + told->base, strlen(here) > start ? here + start : "");
    return 0;
}

int main(int count, char **words)
{
    char here[PATH_MAX];
    if (count != 4 || chdir(words[1]) || !getcwd(here, sizeof here))
        return 2;
    start = strlen(here);
    printf("%d\n", nftw(words[2], tell, 10, atoi(words[3])));
    char after[PATH_MAX];
    printf("back %d\n", getcwd(after, sizeof after) && !strcmp(here, after));
    return 0;
}
