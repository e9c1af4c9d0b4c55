// PtxMachine: executes kernels on the host as nvcc has compiled them to PTX, one instruction at a time.
//
// It knows the instructions that stoker's kernels consist of. A thread runs until a barrier or a shuffle,
// where it waits for its block or its warp. As compute-sanitizer's memcheck and synccheck on a device, it
// reports an access outside of the memory of the device or without the alignment of its size, and a
// barrier or shuffle that some threads do not reach.
//
// Threads: one.
// Errors:  std::runtime_error with file and line of the instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace stoker::cuda {

class PtxMachine {
 public:
  void load(const std::string& path);

  // The memory of the device, at its addresses on the host.
  void set_memory(std::vector<std::span<const std::byte>> memory) { memory_ = std::move(memory); }

  // Runs a grid. `arguments` are the addresses of those of the kernel.
  void launch(const std::string& kernel, uint32_t blocks, uint32_t threads, void* const* arguments);

 private:
  using Operation = uint64_t (*)(uint64_t a, uint64_t b, uint64_t c);
  enum class Kind { kOperation, kMove, kLoad, kStore, kBranch, kBarrier, kShuffle, kReturn };
  enum class Space { kGlobal, kShared, kParameters };

  struct Operand {
    bool is_register = false;
    uint64_t value = 0;  // or the number of the register
  };
  struct Instruction {
    Kind kind = Kind::kOperation;
    Operation operation = nullptr;
    int guard = -1;  // the register of a predicate; the instruction is skipped if it is `skip_if`
    bool skip_if = false;
    Space space = Space::kGlobal;
    size_t bytes = 0;  // of a value; kMove: of a part
    std::vector<Operand> results, inputs;
    uint64_t offset = 0;  // of the address, which is the first input
    std::string label;
    size_t target = 0;
    size_t line = 0;
  };
  struct Parameter {
    size_t offset, size;
  };
  struct Kernel {
    std::string path;
    std::vector<Parameter> parameters;
    size_t parameter_bytes = 0, shared_bytes = 0;
    std::map<std::string, int> registers;
    std::map<std::string, uint64_t> symbols;  // of parameters and shared memory: offsets
    std::vector<Instruction> code;
  };
  enum class State { kRunning, kAtBarrier, kAtShuffle, kEnded };
  struct Thread {
    std::vector<uint64_t> registers;
    size_t next = 0;
    State state = State::kRunning;
  };
  struct Block {
    const Kernel& kernel;
    std::vector<std::byte> parameters, shared;
    std::vector<Thread> threads;
  };

  static const std::map<std::string, Operation>& operations();
  static int register_of(Kernel& kernel, const std::string& name);
  static Operand operand_of(Kernel& kernel, const std::string& text);
  static Instruction parse(Kernel& kernel, std::string text);
  static void add_address(Kernel& kernel, const std::string& text, Instruction& instruction);

  static void run(Block& block);
  void run_thread(Block& block, Thread& thread) const;
  void step(Block& block, Thread& thread, const Instruction& instruction) const;
  std::byte* address(Block& block, const Instruction& instruction, uint64_t at) const;
  static void exchange(Block& block, size_t warp);
  [[noreturn]] static void fail(const Kernel& kernel, size_t line, const std::string& what);

  std::map<std::string, Kernel> kernels_;
  std::vector<std::span<const std::byte>> memory_;
};

}  // namespace stoker::cuda
