# gcc and make: a program of many files, built by two jobs, mended, and built again where it must be, which is a matter of times.
for i in $(seq 20); do
    printf '#include "all.h"\nint f%d(int x) { return x * %d + (x > 0 ? f%d(x - 1) : 0); }\n' "$i" "$i" $((i % 20 + 1)) > "f$i.c"
    echo "int f$i(int x);"
done > all.h
{ echo '#include <stdio.h>'; echo '#include "all.h"'; echo 'int main(void) { printf("%d\n", f1(10)); return 0; }'; } > main.c
cat > Makefile <<'M'
SOURCES := $(wildcard *.c)
program: $(SOURCES:.c=.o) libpart.a
	gcc -o $@ $(SOURCES:.c=.o) libpart.a
libpart.a: f1.o f2.o
	ar rcs $@ $^
%.o: %.c all.h
	gcc -O1 -g -MMD -c $< -o $@
M
make -j2 | sort; ./program; make -q && echo up to date
make | tail -1
sleep 0.02; touch f7.c; make -n | wc -l; make -j2 | sort; make -q && echo up to date
sleep 0.02; touch all.h; make -n | grep -c 'gcc -O1'; make -s -j2; ./program
nm -g program | grep -c ' T f[0-9]'; cp program stripped; strip stripped; ./stripped; ar t libpart.a; objdump -d f3.o | tail -n +4 | sha256sum
gcc -shared -fPIC -o libshared.so f*.c; gcc -o dynamic main.c -L. -lshared; gcc -flto -O2 -save-temps=obj -o lto f*.c main.c && ./lto
