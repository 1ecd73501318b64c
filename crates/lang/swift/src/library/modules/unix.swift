app catp(file f[]) { "cat" f }
app (file o) cat(file f[]) { "cat" f @stdout=o }
app (file o) sed(file i, string command) { "sed" command i @stdout=o }
app (file o) touch() { "touch" o }
app printenv() { "printenv" }
app (file o) cp(file i) { "cp" i o }
app (file o) echo(string s) { "echo" s @stdout=o }
app (void o) sleep(int i) { "sleep" i }
app (void o) mkdir(string name) { "mkdir" "-p" name }
app (void o) rm(string flags, string name) { "rm" flags name }
