// A shared object without a plugin entry.
int answer() { return 42; }
