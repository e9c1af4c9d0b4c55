#include "shared/checkpoint/pickle_reader.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "shared/checkpoint/pickle_globals.h"
#include "shared/checkpoint/pickle_op.h"

namespace stoker::checkpoint {
namespace {

using Type = PickleValue::Type;

constexpr size_t kMaxValues = 2'000'000;
constexpr size_t kMaxName = 256;  // of a type or function
constexpr uint8_t kMaxProtocol = 5;

std::string hex_of(uint8_t op) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[op >> 4], kDigits[op & 15]};
}

class Machine {
 public:
  explicit Machine(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Result<Pickle> run() {
    while (true) {
      began_ = at_;
      STOKER_ASSIGN_OR_RETURN(const uint64_t op, number(1));
      if (op == op::kStop) break;
      STOKER_RETURN_IF_ERROR(step(static_cast<uint8_t>(op)));
    }
    STOKER_ASSIGN_OR_RETURN(pickle_.root, pop());
    if (!stack_.empty() || !marks_.empty()) return wrong("ends with more than one value");
    if (at_ != bytes_.size()) return wrong("has bytes after its end");
    return std::move(pickle_);
  }

 private:
  Status wrong(const std::string& what) const {
    return Status(StatusCode::kCorrupt, "pickle: byte " + std::to_string(began_) + ": " + what);
  }
  Result<std::string_view> take(uint64_t count) {
    if (count > bytes_.size() - at_) return wrong("ends inside an instruction");
    const auto* const text = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += count;
    return std::string_view(text, count);
  }
  Result<uint64_t> number(size_t count) {
    STOKER_ASSIGN_OR_RETURN(const std::string_view text, take(count));
    uint64_t value = 0;
    for (size_t i = count; i > 0; --i) value = value << 8 | static_cast<unsigned char>(text[i - 1]);
    return value;
  }
  Result<std::string_view> line() {
    const auto* const text = reinterpret_cast<const char*>(bytes_.data());
    const std::string_view rest = std::string_view(text, bytes_.size()).substr(at_, kMaxName + 1);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return wrong("a name without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  Status push(PickleValue value) {
    if (pickle_.values.size() == kMaxValues)
      return wrong("more than " + std::to_string(kMaxValues) + " values");
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
    return {};
  }
  Status push_number(int64_t value) { return push({.type = Type::kInt, .number = value}); }
  Status push_text(std::string_view text) {
    return push({.type = Type::kText, .text = std::string(text)});
  }
  // What lies above the last mark is for the instruction that ends it.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<uint32_t> pop() {
    if (stack_.size() <= floor()) return wrong("its stack is empty");
    const uint32_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Result<std::vector<uint32_t>> pop_some(size_t count) {
    if (stack_.size() - floor() < count) return wrong("its stack is empty");
    std::vector<uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  Result<std::vector<uint32_t>> pop_to_mark() {
    if (marks_.empty()) return wrong("no mark on its stack");
    auto items = pop_some(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  Result<PickleValue*> top(Type type, const char* what) {
    if (stack_.size() <= floor() || value(stack_.back()).type != type)
      return wrong(std::string("no ") + what + " where one is due");
    return &value(stack_.back());
  }
  PickleValue& value(uint32_t index) { return pickle_.values[index]; }

  // ---- Instructions

  Status step(uint8_t op) {
    switch (op) {
      case op::kProto:
        return read_protocol();
      case op::kMark:
        marks_.push_back(stack_.size());
        return {};
      case op::kPop:
        return pop().status();
      case op::kNone:
        return push({});
      case op::kNewTrue:
      case op::kNewFalse:
        return push({.type = Type::kBool, .number = op == op::kNewTrue ? 1 : 0});
      case op::kEmptyTuple:
        return push({.type = Type::kTuple});
      case op::kEmptyList:
        return push({.type = Type::kList});
      case op::kEmptyDict:
        return push({.type = Type::kDict});
      default:
        return step_with_bytes(op);
    }
  }
  Status step_with_bytes(uint8_t op) {
    switch (op) {
      case op::kBinInt:
      case op::kBinInt1:
      case op::kBinInt2:
      case op::kLong1:
      case op::kBinFloat:
        return read_number(op);
      case op::kBinUnicode:
      case op::kShortBinString:
        return read_text(op == op::kBinUnicode ? 4 : 1);
      case op::kGlobal:
        return read_name();
      case op::kBinGet:
      case op::kLongBinGet:
        return get(op == op::kBinGet ? 1 : 4);
      case op::kBinPut:
      case op::kLongBinPut:
        return put(op == op::kBinPut ? 1 : 4);
      default:
        return step_on_stack(op);
    }
  }
  Status step_on_stack(uint8_t op) {
    switch (op) {
      case op::kTuple:
        return push_tuple(pop_to_mark());
      case op::kTuple1:
      case op::kTuple2:
      case op::kTuple3:
        return push_tuple(pop_some(static_cast<size_t>(op - op::kTuple1) + 1));
      case op::kAppend:
        return append(pop_some(1));
      case op::kAppends:
        return append(pop_to_mark());
      case op::kSetItem:
        return set_items(pop_some(2));
      case op::kSetItems:
        return set_items(pop_to_mark());
      case op::kBinPersId:
        return load_storage();
      case op::kReduce:
        return reduce();
      case op::kBuild:
        return build();
      default:
        return wrong("instruction " + hex_of(op) + " is not one that torch.save writes by default");
    }
  }

  Status read_protocol() {
    STOKER_ASSIGN_OR_RETURN(const uint64_t protocol, number(1));
    if (protocol <= kMaxProtocol) return {};
    return wrong("protocol " + std::to_string(protocol) + " does not exist");
  }
  Status read_number(uint8_t op) {
    if (op == op::kBinInt) {
      STOKER_ASSIGN_OR_RETURN(const uint64_t bits, number(4));
      return push_number(static_cast<int32_t>(static_cast<uint32_t>(bits)));
    }
    if (op == op::kBinFloat) {
      STOKER_RETURN_IF_ERROR(take(8).status());
      return push({.type = Type::kOther});
    }
    if (op == op::kLong1) return read_long();
    STOKER_ASSIGN_OR_RETURN(const uint64_t small, number(op == op::kBinInt1 ? 1 : 2));
    return push_number(static_cast<int64_t>(small));
  }
  // Two's complement, as many bytes as it takes.
  Status read_long() {
    STOKER_ASSIGN_OR_RETURN(const uint64_t count, number(1));
    STOKER_ASSIGN_OR_RETURN(const std::string_view bytes, take(count));
    if (count > sizeof(int64_t)) return push({.type = Type::kOther});
    const bool is_negative = count > 0 && static_cast<unsigned char>(bytes.back()) >= 0x80;
    uint64_t bits = is_negative ? ~uint64_t{0} : 0;
    for (size_t i = count; i > 0; --i) bits = bits << 8 | static_cast<unsigned char>(bytes[i - 1]);
    return push_number(static_cast<int64_t>(bits));
  }
  Status read_text(size_t length_bytes) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t length, number(length_bytes));
    STOKER_ASSIGN_OR_RETURN(const std::string_view text, take(length));
    return push_text(text);
  }
  Status read_name() {
    STOKER_ASSIGN_OR_RETURN(const std::string_view module, line());
    STOKER_ASSIGN_OR_RETURN(const std::string_view word, line());
    std::string name = std::string(module) + '.' + std::string(word);
    if (is_allowed_global(name)) return push({.type = Type::kName, .text = std::move(name)});
    return wrong("holds " + printable(name) +
                 ", which is not read here; save the weights alone, from Python: "
                 "torch.save(model.state_dict(), FILE)");
  }

  Status get(size_t index_bytes) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t index, number(index_bytes));
    const auto found = memo_.find(index);
    if (found == memo_.end()) return wrong("uses a value that it has not kept");
    stack_.push_back(found->second);
    return {};
  }
  Status put(size_t index_bytes) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t index, number(index_bytes));
    if (stack_.size() <= floor()) return wrong("its stack is empty");
    memo_[index] = stack_.back();
    return {};
  }

  Status push_tuple(Result<std::vector<uint32_t>> items) {
    if (!items.ok()) return items.status();
    return push({.type = Type::kTuple, .items = *std::move(items)});
  }
  Status append(Result<std::vector<uint32_t>> items) {
    if (!items.ok()) return items.status();
    STOKER_ASSIGN_OR_RETURN(PickleValue* const list, top(Type::kList, "list"));
    list->items.insert(list->items.end(), items->begin(), items->end());
    return {};
  }
  Status set_items(Result<std::vector<uint32_t>> items) {
    if (!items.ok()) return items.status();
    if (items->size() % 2 != 0) return wrong("a key without a value");
    STOKER_ASSIGN_OR_RETURN(PickleValue* const dict, top(Type::kDict, "dict"));
    dict->items.insert(dict->items.end(), items->begin(), items->end());
    return {};
  }
  // The attributes of an OrderedDict, such as the versions of a model's parts, decide nothing here.
  Status build() {
    STOKER_ASSIGN_OR_RETURN(const uint32_t state, pop());
    STOKER_RETURN_IF_ERROR(top(Type::kDict, "dict").status());
    if (value(state).type == Type::kDict) return {};
    return wrong("attributes that are no dict");
  }

  Status load_storage() {
    STOKER_ASSIGN_OR_RETURN(const uint32_t id, pop());
    auto storage = parse_storage(pickle_, value(id));
    if (!storage.ok()) return wrong(storage.status().message());
    pickle_.storages.push_back(*std::move(storage));
    return push(
        {.type = Type::kStorage, .number = static_cast<int64_t>(pickle_.storages.size()) - 1});
  }
  Status reduce() {
    STOKER_ASSIGN_OR_RETURN(const uint32_t arguments, pop());
    STOKER_ASSIGN_OR_RETURN(const uint32_t function, pop());
    if (value(function).type != Type::kName || value(arguments).type != Type::kTuple)
      return wrong("a call of what is no function");
    auto made = apply_reduce(pickle_, value(function).text, value(arguments).items);
    if (!made.ok()) return wrong(made.status().message());
    if (made->maybe_same) {
      stack_.push_back(*made->maybe_same);
      return {};
    }
    return push(std::move(made->value));
  }

  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
  size_t began_ = 0;  // of the instruction at hand
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
};

}  // namespace

Result<Pickle> read_pickle(std::span<const std::byte> bytes) { return Machine(bytes).run(); }

}  // namespace stoker::checkpoint
