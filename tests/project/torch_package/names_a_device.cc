#include <c10/core/Device.h>

#include <cstdio>

int main() { std::puts(c10::Device("cpu").str().c_str()); }
