app catp(file f[]) { "cat" f }
app (file o) cat(file f[]) { "cat" f @stdout=o }
app (file o) sed(file i, string command) { "sed" command i @stdout=o }
app (file o) touch() { "touch" o }
app printenv() { "printenv" }
