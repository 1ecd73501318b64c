# A program whose library lies beside it: the loader finds it by the path that the program names.
echo 'int part(void) { return 42; }' > part.c; echo 'int part(void); int main(void) { return part() - 42; }' > main.c
gcc -shared -fPIC -o libpart.so part.c; gcc -o program main.c -L. -lpart -Wl,-rpath,"$PWD"; ./program && echo found
ldd program | grep -c "$PWD/libpart.so"; LD_LIBRARY_PATH="$PWD" ./program && echo found
