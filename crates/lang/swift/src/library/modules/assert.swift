(void o) assert(boolean condition, string message) "assert";
(void o) assertEqual(string a, string b, string message) "assert_equal";
(void o) assertEqual(int a, int b, string message) "assert_equal";
(void o) assertEqual(float a, float b, string message) "assert_equal";
(void o) assertEqual(boolean a, boolean b, string message) "assert_equal";
