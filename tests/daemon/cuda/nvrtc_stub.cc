// Stands for a library of NVRTC; only its names matter.
extern "C" int stoker_nvrtc_stub() { return 0; }
