string CLOCK_FMT_ISO8601 = "%Y-%m-%dT%H:%M:%S";
string CLOCK_FMT_RFC3339 = "%Y-%m-%d %H:%M:%S";
(string o) getenv(string name) "getenv";
(int o) INT_MAX() "int_max";
