#include <cstdio>

#include <c10/core/Device.h>

int main() { std::puts(c10::Device("cpu").str().c_str()); }
