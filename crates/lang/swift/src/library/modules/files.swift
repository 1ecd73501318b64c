(file o[]) glob(string pattern) "glob";
(string o) read(file f) "read";
(file o) write(string text) "write";
(boolean o) file_exists(string name) "file_exists";
(string o[]) file_lines(file f, string comment="#") "file_lines";
(string o) dirname(file f) { o = dirname_string(filename(f)); }
(string o) basename(file f) { o = basename_string(filename(f)); }
(string o) rootname(file f) { o = rootname_string(filename(f)); }
(string o) extension(file f) { o = extension_string(filename(f)); }
(string o) dirname_string(string path) "dirname";
(string o) basename_string(string path) "basename";
(string o) rootname_string(string path) "rootname";
(string o) extension_string(string path) "extension";
(file f) unsafe_uncached_input_file(string name) "input";
(string o) file_type(file f) "file_type";
(string o) file_type_string(string name) "file_type_string";
(int o) file_mtime(string name) "file_mtime";
(string o[]) file_chunks(file f, string delimiter="----", string comment="#") "file_chunks";
(file o) write_array_string(string a[], int chunk=100, boolean indices=false) { o = write(_lines_of(a, indices)); }
(file o) write_array_string_ordered(string a[]) { o = write(_lines_of(a, false)); }
(string o) _lines_of(string a[], boolean indices) "lines_of";
(file o) mktemp() { o = write(""); }
(string o) mktemp_string() "missing: a temporary file has no path outside of the pool; use mktemp()";
(file o) realpath(file f) "missing: paths of inputs are those of the script";
(string o) realpath_string(string path) "missing: paths of inputs are those of the script";
