#include "tests/daemon/cuda/kernels/ptx_machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace stoker::cuda {
namespace {

constexpr size_t kWarp = 32;

// ---- Values of registers

template <typename T>
T as(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<T>(bits);
}

template <typename T>
uint64_t bits(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

template <typename T, typename Function>
uint64_t unary(uint64_t a, uint64_t, uint64_t) {
  return bits(static_cast<T>(Function()(as<T>(a))));
}
template <typename T, typename Function>
uint64_t binary(uint64_t a, uint64_t b, uint64_t) {
  return bits(static_cast<T>(Function()(as<T>(a), as<T>(b))));
}
template <typename T, typename Function>
uint64_t compare(uint64_t a, uint64_t b, uint64_t) {
  return Function()(as<T>(a), as<T>(b)) ? 1 : 0;
}
template <typename To, typename From>
uint64_t convert(uint64_t a, uint64_t, uint64_t) {
  return bits(static_cast<To>(as<From>(a)));
}

struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Arithmetic wraps around, therefore of unsigned types.
template <typename T>
void add_integers(auto& table, const std::string& type) {
  using U = std::make_unsigned_t<T>;
  table["add." + type] = binary<U, std::plus<>>;
  table["sub." + type] = binary<U, std::minus<>>;
  table["mul.lo." + type] = binary<U, std::multiplies<>>;
  table["mad.lo." + type] = [](uint64_t a, uint64_t b, uint64_t c) {
    return bits(static_cast<U>(as<U>(a) * as<U>(b) + as<U>(c)));
  };
  table["div." + type] = binary<T, std::divides<>>;
  table["rem." + type] = binary<T, std::modulus<>>;
  table["neg." + type] = unary<U, std::negate<>>;
  table["min." + type] = binary<T, Min>;
  table["max." + type] = binary<T, Max>;
  // By at least its size: zero, or the sign.
  table["shr." + type] = [](uint64_t a, uint64_t b, uint64_t) {
    const uint64_t most = sizeof(T) * 8 - 1, by = as<uint32_t>(b);
    const auto shifted = static_cast<T>(as<T>(a) >> std::min(by, most));
    return bits(by > most && std::is_unsigned_v<T> ? T{0} : shifted);
  };
}

template <typename T>
void add_comparisons(auto& table, const std::string& type) {
  table["setp.eq." + type] = compare<T, std::equal_to<>>;
  // Of floats, unlike C++'s: false if one is NaN. No kernel has it.
  if constexpr (std::is_integral_v<T>) table["setp.ne." + type] = compare<T, std::not_equal_to<>>;
  table["setp.lt." + type] = compare<T, std::less<>>;
  table["setp.le." + type] = compare<T, std::less_equal<>>;
  table["setp.gt." + type] = compare<T, std::greater<>>;
  table["setp.ge." + type] = compare<T, std::greater_equal<>>;
}

template <typename T>
void add_bits(auto& table, const std::string& type) {
  table["and." + type] = binary<T, std::bit_and<>>;
  table["or." + type] = binary<T, std::bit_or<>>;
  table["xor." + type] = binary<T, std::bit_xor<>>;
  table["not." + type] = unary<T, std::bit_not<>>;
  table["shl." + type] = [](uint64_t a, uint64_t b, uint64_t) {
    return as<uint32_t>(b) < sizeof(T) * 8 ? bits(static_cast<T>(as<T>(a) << as<uint32_t>(b))) : 0;
  };
}

// True also if a value is NaN.
struct LessUnordered {
  bool operator()(float a, float b) const { return !(a >= b); }
};

// Rounds toward minus infinity. The product of two floats is exact in F64.
float fma_down(float a, float b, float c) {
  const double exact = static_cast<double>(a) * b + c;
  const auto rounded = static_cast<float>(exact);
  return rounded > exact ? std::nextafter(rounded, -std::numeric_limits<float>::infinity())
                         : rounded;
}

// Selects four of the eight bytes of `a` and `b`.
uint64_t permute_bytes(uint64_t a, uint64_t b, uint64_t selection) {
  const uint64_t all = (b << 32) | static_cast<uint32_t>(a);
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint64_t selected = selection >> (4 * i);
    uint32_t byte = (all >> (8 * (selected & 7))) & 0xff;
    if ((selected & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

std::vector<std::string> split(const std::string& text, const std::string& separators) {
  std::vector<std::string> parts;
  for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

size_t size_of_type(const std::string& opcode) {
  const std::string type = opcode.substr(opcode.rfind('.') + 1);
  if (type == "pred") return 1;
  return std::stoul(type.substr(1)) / 8;
}

}  // namespace

const std::map<std::string, PtxMachine::Operation>& PtxMachine::operations() {
  static const std::map<std::string, Operation> all = [] {
    std::map<std::string, Operation> table;
    add_integers<int16_t>(table, "s16");
    add_integers<uint16_t>(table, "u16");
    add_integers<int32_t>(table, "s32");
    add_integers<uint32_t>(table, "u32");
    add_integers<int64_t>(table, "s64");
    add_integers<uint64_t>(table, "u64");
    add_comparisons<int16_t>(table, "s16");
    add_comparisons<int32_t>(table, "s32");
    add_comparisons<uint32_t>(table, "u32");
    add_comparisons<int64_t>(table, "s64");
    add_comparisons<uint64_t>(table, "u64");
    add_comparisons<uint64_t>(table, "b64");
    add_comparisons<float>(table, "f32");
    table["setp.ltu.f32"] = compare<float, LessUnordered>;
    add_bits<uint16_t>(table, "b16");
    add_bits<uint32_t>(table, "b32");
    add_bits<uint64_t>(table, "b64");
    table["and.pred"] = binary<uint64_t, std::bit_and<>>;
    table["or.pred"] = binary<uint64_t, std::bit_or<>>;
    table["xor.pred"] = binary<uint64_t, std::bit_xor<>>;
    table["not.pred"] = [](uint64_t a, uint64_t, uint64_t) { return a ^ 1; };
    table["mul.wide.s32"] = [](uint64_t a, uint64_t b, uint64_t) {
      return bits(int64_t{as<int32_t>(a)} * as<int32_t>(b));
    };
    table["mul.wide.u32"] = [](uint64_t a, uint64_t b, uint64_t) {
      return uint64_t{as<uint32_t>(a)} * as<uint32_t>(b);
    };
    table["prmt.b32"] = permute_bytes;
    for (const char* const type : {"b16", "b32", "b64", "f32", "s32", "u32", "s64", "u64"})
      table[std::string("selp.") + type] = [](uint64_t a, uint64_t b, uint64_t c) {
        return c != 0 ? a : b;
      };

    table["add.f32"] = binary<float, std::plus<>>;
    table["sub.f32"] = binary<float, std::minus<>>;
    table["mul.f32"] = binary<float, std::multiplies<>>;
    table["div.rn.f32"] = binary<float, std::divides<>>;
    table["neg.f32"] = unary<float, std::negate<>>;
    table["abs.f32"] = [](uint64_t a, uint64_t, uint64_t) { return a & 0x7fffffff; };
    // The sign of the first one.
    table["copysign.f32"] = [](uint64_t a, uint64_t b, uint64_t) {
      return bits(std::copysign(as<float>(b), as<float>(a)));
    };
    table["fma.rn.f32"] = [](uint64_t a, uint64_t b, uint64_t c) {
      return bits(std::fma(as<float>(a), as<float>(b), as<float>(c)));
    };
    table["fma.rm.f32"] = [](uint64_t a, uint64_t b, uint64_t c) {
      return bits(fma_down(as<float>(a), as<float>(b), as<float>(c)));
    };
    table["rcp.rn.f32"] = [](uint64_t a, uint64_t, uint64_t) { return bits(1.0F / as<float>(a)); };
    table["sqrt.rn.f32"] = [](uint64_t a, uint64_t, uint64_t) {
      return bits(std::sqrt(as<float>(a)));
    };
    // On a device the last digits can differ.
    table["ex2.approx.f32"] = [](uint64_t a, uint64_t, uint64_t) {
      return bits(std::exp2(as<float>(a)));
    };
    table["ex2.approx.ftz.f32"] = table["ex2.approx.f32"];
    table["rcp.approx.ftz.f32"] = table["rcp.rn.f32"];

    table["cvta.to.global.u64"] = [](uint64_t a, uint64_t, uint64_t) { return a; };
    table["cvt.u16.u32"] = convert<uint16_t, uint32_t>;
    table["cvt.u32.u16"] = convert<uint32_t, uint16_t>;
    table["cvt.u32.u64"] = convert<uint32_t, uint64_t>;
    table["cvt.u64.u32"] = convert<uint64_t, uint32_t>;
    table["cvt.s64.s32"] = convert<int64_t, int32_t>;
    table["cvt.rn.f32.s32"] = convert<float, int32_t>;
    table["cvt.rn.f32.s64"] = convert<float, int64_t>;
    table["cvt.rn.f32.f64"] = convert<float, double>;
    table["cvt.rni.f32.f32"] = [](uint64_t a, uint64_t, uint64_t) {
      return bits(std::nearbyint(as<float>(a)));
    };
    // To [0, 1]; NaN becomes 0.
    table["cvt.sat.f32.f32"] = [](uint64_t a, uint64_t, uint64_t) {
      const auto value = as<float>(a);
      return bits(value >= 1 ? 1.0F : value > 0 ? value : 0.0F);
    };
    return table;
  }();
  return all;
}

void PtxMachine::fail(const Kernel& kernel, size_t line, const std::string& what) {
  throw std::runtime_error(kernel.path + ":" + std::to_string(line) + ": " + what);
}

// ---- Parsing: one statement per line, as nvcc writes it

int PtxMachine::register_of(Kernel& kernel, const std::string& name) {
  return kernel.registers.try_emplace(name, static_cast<int>(kernel.registers.size()))
      .first->second;
}

PtxMachine::Operand PtxMachine::operand_of(Kernel& kernel, const std::string& text) {
  if (const auto symbol = kernel.symbols.find(text); symbol != kernel.symbols.end())
    return {.value = symbol->second};
  if (text.starts_with("0f") || text.starts_with("0d"))
    return {.value = std::stoull(text.substr(2), nullptr, 16)};
  if (text.find_first_not_of("-0123456789") == std::string::npos)
    return {.value = static_cast<uint64_t>(std::stoll(text))};
  return {.is_register = true, .value = static_cast<uint64_t>(register_of(kernel, text))};
}

// "[base+offset]"
void PtxMachine::add_address(Kernel& kernel, const std::string& text, Instruction& instruction) {
  const std::vector<std::string> parts = split(text, "[]+");
  instruction.inputs.push_back(operand_of(kernel, parts.at(0)));
  if (parts.size() > 1) instruction.offset = static_cast<uint64_t>(std::stoll(parts[1]));
}

PtxMachine::Instruction PtxMachine::parse(Kernel& kernel, std::string text) {
  Instruction instruction;
  // "{ .reg .b16 tmp; mov.b32 {tmp, %rs1}, %r25; }"
  if (text.starts_with("{ .reg")) text = text.substr(text.find(';') + 2);
  text = text.substr(0, text.find(';'));
  if (text.starts_with('@')) {
    instruction.skip_if = text[1] == '!';
    const size_t end = text.find_first_of(" \t");
    instruction.guard = register_of(
        kernel, text.substr(instruction.skip_if ? 2 : 1, end - (instruction.skip_if ? 2 : 1)));
    text = text.substr(text.find_first_not_of(" \t", end));
  }
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string opcode = text.substr(0, end);
  // Lists in braces are those of results, or of inputs if they come last.
  const std::vector<std::string> operands = split(text.substr(end), " \t,|{}");
  const auto opens = text.find('{');
  const size_t in_braces = opens == std::string::npos
                               ? 1
                               : split(text.substr(opens, text.find('}') - opens), " \t,{}").size();
  const bool is_pack = opens != std::string::npos && text.find(',') < opens;

  if (opcode.starts_with("ld.") || opcode.starts_with("st.")) {
    const bool is_load = opcode[0] == 'l';
    instruction.kind = is_load ? Kind::kLoad : Kind::kStore;
    instruction.space = opcode.substr(3, 6) == "global"   ? Space::kGlobal
                        : opcode.substr(3, 6) == "shared" ? Space::kShared
                                                          : Space::kParameters;
    instruction.bytes = size_of_type(opcode);
    add_address(kernel, is_load ? operands.back() : operands.at(0), instruction);
    for (size_t i = is_load ? 0 : 1; i < operands.size() - (is_load ? 1 : 0); ++i)
      (is_load ? instruction.results : instruction.inputs)
          .push_back(operand_of(kernel, operands[i]));
    return instruction;
  }
  if (opcode.starts_with("bra")) {
    instruction.kind = Kind::kBranch;
    instruction.label = operands.at(0);
    return instruction;
  }
  if (opcode == "bar.sync" || opcode == "ret") {
    instruction.kind = opcode == "ret" ? Kind::kReturn : Kind::kBarrier;
    return instruction;
  }
  const size_t results = opcode == "shfl.sync.bfly.b32"          ? 2
                         : is_pack || opens == std::string::npos ? 1
                                                                 : in_braces;
  for (size_t i = 0; i < operands.size(); ++i)
    (i < results ? instruction.results : instruction.inputs)
        .push_back(operand_of(kernel, operands[i]));
  if (opcode == "shfl.sync.bfly.b32") {
    instruction.kind = Kind::kShuffle;
  } else if (opcode.starts_with("mov.")) {
    instruction.kind = Kind::kMove;
    instruction.bytes = size_of_type(opcode) / in_braces;
  } else {
    const auto found = operations().find(opcode);
    if (found == operations().end()) throw std::runtime_error("unknown instruction " + opcode);
    instruction.operation = found->second;
  }
  return instruction;
}

void PtxMachine::load(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Kernel* kernel = nullptr;
  std::map<std::string, size_t> labels;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line.compare(first, 2, "//") == 0) continue;
    line = line.substr(first);
    const std::vector<std::string> words = split(line, " \t,();[]");
    if (line.starts_with(".visible .entry")) {
      kernel = &kernels_[words.at(2)];
      *kernel = Kernel{.path = path};
      labels.clear();
    } else if (line.starts_with(".param") || line.starts_with(".shared")) {
      // ".param .align 8 .b8 NAME[SIZE]", or ".param .u64 NAME"
      const bool is_array = words.at(1) == ".align";
      const size_t size = is_array ? std::stoul(words.at(5)) : size_of_type(words.at(1));
      const size_t alignment = is_array ? std::stoul(words.at(2)) : size;
      size_t& bytes = line[1] == 'p' ? kernel->parameter_bytes : kernel->shared_bytes;
      bytes = (bytes + alignment - 1) / alignment * alignment;
      kernel->symbols[words.at(is_array ? 4 : 2)] = bytes;
      if (line[1] == 'p') kernel->parameters.push_back({bytes, size});
      bytes += size;
    } else if (line.starts_with("}")) {
      for (Instruction& instruction : kernel->code)
        if (instruction.kind == Kind::kBranch) instruction.target = labels.at(instruction.label);
    } else if (line.starts_with("$")) {
      labels[line.substr(0, line.find(':'))] = kernel->code.size();
    } else if (!line.starts_with(".") && line != "{" && line != ")") {
      try {
        kernel->code.push_back(parse(*kernel, line));
      } catch (const std::exception& error) {
        fail(*kernel, number, error.what());
      }
      kernel->code.back().line = number;
    }
  }
}

// ---- Execution

void PtxMachine::launch(const std::string& name, uint32_t blocks, uint32_t threads,
                        void* const* arguments) {
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) throw std::runtime_error("no kernel " + name);
  const Kernel& kernel = found->second;
  if (threads % kWarp != 0) fail(kernel, 0, "the last warp of a block is not complete");
  std::vector<std::byte> parameters(kernel.parameter_bytes);
  for (size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(parameters.data() + kernel.parameters[i].offset, arguments[i],
                kernel.parameters[i].size);
  const auto set = [&](Thread& thread, const char* special, uint64_t value) {
    const auto at = kernel.registers.find(special);
    if (at != kernel.registers.end()) thread.registers[static_cast<size_t>(at->second)] = value;
  };
  for (uint32_t index = 0; index < blocks; ++index) {
    // What is not written before it is read shows up as NaN.
    Block block{kernel, parameters, std::vector<std::byte>(kernel.shared_bytes, std::byte{0xff}),
                std::vector<Thread>(threads)};
    for (uint32_t thread = 0; thread < threads; ++thread) {
      Thread& of = block.threads[thread];
      of.registers.assign(kernel.registers.size(), ~uint64_t{0});
      set(of, "%tid.x", thread);
      set(of, "%ntid.x", threads);
      set(of, "%ctaid.x", index);
      set(of, "%nctaid.x", blocks);
    }
    while (std::ranges::any_of(
        block.threads, [](const Thread& thread) { return thread.state != State::kEnded; })) {
      for (Thread& thread : block.threads) run_thread(block, thread);
      run(block);
    }
  }
}

// All threads wait or have ended: lets those continue that wait for each other.
void PtxMachine::run(Block& block) {
  bool is_shuffle = false;
  for (size_t warp = 0; warp < block.threads.size() / kWarp; ++warp) {
    const auto lanes = std::span(block.threads).subspan(warp * kWarp, kWarp);
    if (std::ranges::none_of(lanes,
                             [](const Thread& lane) { return lane.state == State::kAtShuffle; }))
      continue;
    exchange(block, warp);
    is_shuffle = true;
  }
  if (is_shuffle) return;
  const Thread& first = block.threads.front();
  for (Thread& thread : block.threads) {
    if (thread.state != first.state || thread.next != first.next) {
      const Thread& waiting = first.state == State::kAtBarrier ? first : thread;
      fail(block.kernel, block.kernel.code[waiting.next - 1].line,
           "not all threads reach the barrier");
    }
  }
  if (first.state == State::kAtBarrier)
    for (Thread& thread : block.threads) thread.state = State::kRunning;
}

// shfl.sync.bfly RESULT|VALID, VALUE, MASK, 31, -1 of the lanes of a warp.
void PtxMachine::exchange(Block& block, size_t warp) {
  const auto lanes = std::span(block.threads).subspan(warp * kWarp, kWarp);
  const Thread& waiting = *std::ranges::find(lanes, State::kAtShuffle, &Thread::state);
  const Instruction& instruction = block.kernel.code[waiting.next - 1];
  std::array<uint64_t, kWarp> values{};
  const auto input = [&](const Thread& lane, size_t i) {
    const Operand& operand = instruction.inputs.at(i);
    return operand.is_register ? lane.registers[operand.value] : operand.value;
  };
  for (size_t i = 0; i < kWarp; ++i) {
    if (lanes[i].state != State::kAtShuffle || lanes[i].next != waiting.next)
      fail(block.kernel, instruction.line, "not all lanes of the warp reach the shuffle");
    if (as<uint32_t>(input(lanes[i], 2)) != 31 || as<uint32_t>(input(lanes[i], 3)) != 0xffffffff)
      fail(block.kernel, instruction.line, "a shuffle of a part of a warp");
    values[i] = input(lanes[i], 0);
  }
  for (size_t i = 0; i < kWarp; ++i) {
    lanes[i].registers[instruction.results[0].value] = values[i ^ as<uint32_t>(input(lanes[i], 1))];
    lanes[i].registers[instruction.results[1].value] = 1;
    lanes[i].state = State::kRunning;
  }
}

void PtxMachine::run_thread(Block& block, Thread& thread) const {
  while (thread.state == State::kRunning) {
    const Instruction& instruction = block.kernel.code.at(thread.next++);
    if (instruction.guard >= 0 &&
        (thread.registers[static_cast<size_t>(instruction.guard)] != 0) == instruction.skip_if)
      continue;
    step(block, thread, instruction);
  }
}

void PtxMachine::step(Block& block, Thread& thread, const Instruction& instruction) const {
  const auto input = [&](size_t i) {
    if (i >= instruction.inputs.size()) return uint64_t{0};
    const Operand& operand = instruction.inputs[i];
    return operand.is_register ? thread.registers[operand.value] : operand.value;
  };
  const auto set = [&](size_t i, uint64_t value) {
    thread.registers[instruction.results[i].value] = value;
  };
  switch (instruction.kind) {
    case Kind::kOperation:
      set(0, instruction.operation(input(0), input(1), input(2)));
      return;
    case Kind::kMove: {
      // One value, or the parts of one.
      const size_t part_bits = 8 * instruction.bytes;
      const uint64_t mask = part_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << part_bits) - 1;
      uint64_t value = 0;
      for (size_t i = 0; i < instruction.inputs.size(); ++i)
        value |= instruction.inputs.size() == 1 ? input(i) : (input(i) & mask) << (part_bits * i);
      for (size_t i = 0; i < instruction.results.size(); ++i)
        set(i, instruction.results.size() == 1 ? value : (value >> (part_bits * i)) & mask);
      return;
    }
    case Kind::kLoad: {
      const std::byte* const from = address(block, instruction, input(0));
      for (size_t i = 0; i < instruction.results.size(); ++i) {
        uint64_t value = 0;
        std::memcpy(&value, from + i * instruction.bytes, instruction.bytes);
        set(i, value);
      }
      return;
    }
    case Kind::kStore: {
      std::byte* const to = address(block, instruction, input(0));
      for (size_t i = 1; i < instruction.inputs.size(); ++i) {
        const uint64_t value = input(i);
        std::memcpy(to + (i - 1) * instruction.bytes, &value, instruction.bytes);
      }
      return;
    }
    case Kind::kBranch:
      thread.next = instruction.target;
      return;
    case Kind::kBarrier:
      thread.state = State::kAtBarrier;
      return;
    case Kind::kShuffle:
      thread.state = State::kAtShuffle;
      return;
    case Kind::kReturn:
      thread.state = State::kEnded;
      return;
  }
}

std::byte* PtxMachine::address(Block& block, const Instruction& instruction, uint64_t base) const {
  const uint64_t at = instruction.space == Space::kShared
                          ? uint64_t{as<uint32_t>(base)} + instruction.offset
                          : base + instruction.offset;
  const size_t values =
      instruction.kind == Kind::kLoad ? instruction.results.size() : instruction.inputs.size() - 1;
  const size_t bytes = values * instruction.bytes;
  if (at % bytes != 0)
    fail(block.kernel, instruction.line,
         "the address is not a multiple of " + std::to_string(bytes));
  if (instruction.space == Space::kGlobal) {
    auto* const address = reinterpret_cast<std::byte*>(at);
    for (const std::span<const std::byte> memory : memory_)
      if (address >= memory.data() && address + bytes <= memory.data() + memory.size())
        return address;
  } else {
    std::vector<std::byte>& memory =
        instruction.space == Space::kShared ? block.shared : block.parameters;
    if (at + bytes <= memory.size()) return memory.data() + at;
  }
  fail(block.kernel, instruction.line, "the address is outside of the memory");
}

}  // namespace stoker::cuda
