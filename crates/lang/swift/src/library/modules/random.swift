(float o) random() "random";
(int o) randint(int start, int end) "randint";
