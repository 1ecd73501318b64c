(void o) printf(string format, int|float|string|boolean... args) "printf";
