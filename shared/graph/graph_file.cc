#include "shared/graph/graph_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::graph {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 64;           // of JSON
constexpr int64_t kMaxValues = 1'000'000;  // of a program
constexpr size_t kMaxNodes = 1'000'000;    // of a program, with those of its parts
constexpr size_t kMaxModules = 100'000;    // that are recomputed
constexpr size_t kMaxFields = 256;
constexpr size_t kMaxDims = 64;    // as LibTorch
constexpr size_t kMaxShown = 100;  // characters of the file in a message

struct ReadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string shown(std::string_view text) {
  std::string printable;
  for (const char c : text.substr(0, kMaxShown))
    printable += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return printable + (text.size() > kMaxShown ? "…" : "");
}

// Where in the document a value is: part of messages.
class Place {
 public:
  explicit Place(std::string text) : text_(std::move(text)) {}
  Place operator[](std::string_view key) const {
    return Place(text_ + (text_.empty() ? "" : ".") + shown(key));
  }
  Place operator[](size_t index) const { return Place(text_ + '[' + std::to_string(index) + ']'); }
  [[noreturn]] void fail(const std::string& what) const { throw ReadError(text_ + ": " + what); }

 private:
  std::string text_;
};

// A value and its place; accessors throw a ReadError.
class Reader {
 public:
  Reader(const json::value& value, Place place) : value_(value), place_(std::move(place)) {}

  const json::value& value() const { return value_; }
  const Place& place() const { return place_; }
  [[noreturn]] void fail(const std::string& what) const { place_.fail(what); }

  const json::object& object() const {
    if (!value_.is_object()) fail("must be an object");
    return value_.get_object();
  }
  Reader at(const char* key) const {
    const json::value* const found = object().if_contains(key);
    if (found == nullptr) fail(std::string("has no ") + key);
    return {*found, place_[key]};
  }
  std::optional<Reader> find(const char* key) const {
    const json::value* const found = object().if_contains(key);
    if (found == nullptr) return std::nullopt;
    return Reader(*found, place_[key]);
  }
  std::vector<Reader> items() const {
    if (!value_.is_array()) fail("must be a list");
    std::vector<Reader> all;
    for (size_t i = 0; i < value_.get_array().size(); ++i)
      all.emplace_back(value_.get_array()[i], place_[i]);
    return all;
  }
  std::string text() const {
    if (!value_.is_string()) fail("must be a text");
    return std::string(value_.get_string());
  }
  bool boolean() const {
    if (!value_.is_bool()) fail("must be true or false");
    return value_.get_bool();
  }
  int64_t integer(int64_t min, int64_t max) const {
    if (!value_.is_int64() || value_.get_int64() < min || value_.get_int64() > max)
      fail("must be a number from " + std::to_string(min) + " to " + std::to_string(max));
    return value_.get_int64();
  }
  double finite() const {
    boost::system::error_code error;
    const auto number = value_.to_number<double>(error);
    if (error || !std::isfinite(number)) fail("must be a finite number");
    return number;
  }

 private:
  const json::value& value_;
  const Place place_;
};

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

// ---- Operators

constexpr auto kAllowed = std::to_array<std::string_view>({
#include "shared/graph/allowed_operators.inc"  // python/stoker_export/operators.txt
});
static_assert(std::ranges::is_sorted(kAllowed));

bool is_allowed(std::string_view name) { return std::ranges::binary_search(kAllowed, name); }

constexpr std::array<std::string_view, 24> kSizeFunctions = {
    "add", "sub", "mul", "floordiv", "mod", "truediv", "neg",  "eq",
    "ne",  "lt",  "le",  "gt",       "ge",  "and",     "or",   "pow",
    "max", "min", "int", "float",    "not", "ite",     "ceil", "floor"};
constexpr std::array<std::string_view, 3> kMoreSizeFunctions = {"trunc", "sqrt", "getitem"};

size_t arity(std::string_view function) {
  for (const std::string_view one :
       {"neg", "int", "float", "not", "ceil", "floor", "trunc", "sqrt"})
    if (function == one) return 1;
  return function == "ite" ? 3 : 2;
}

// ---- Programs

class ProgramReader {
 public:
  ProgramReader(const GraphFile& file) : file_(file) {}

  Program read(const Reader& in) {
    Program program;
    program.num_values = num_values_ = in.at("num_values").integer(0, kMaxValues);
    defined_.assign(static_cast<size_t>(num_values_), false);
    for (const Reader& input : in.at("inputs").items()) {
      program.inputs.push_back(spec_of_sample(input));
      program.graph.inputs.push_back(define(input.at("v")));
    }
    std::set<int64_t> visible(program.graph.inputs.begin(), program.graph.inputs.end());
    read_body(in, visible, program.graph);
    for (const Reader& update : in.at("updates").items()) {
      const int64_t tensor = table_index(update.at("tensor"));
      if (file_.tensors[static_cast<size_t>(tensor)].kind != TableEntry::Kind::kBuffer)
        update.fail("only buffers can be replaced");
      program.updates.emplace_back(tensor, argument(update.at("value"), visible));
      if (program.updates.back().second.kind != Argument::Kind::kValue)
        update.fail("must have a value of the program");
    }
    return program;
  }

 private:
  static TensorSpec spec_of_sample(const Reader& in) {
    TensorSpec spec;
    const auto dtype = parse_dtype(in.at("dtype").text());
    if (!dtype) in.fail("has an unknown dtype");
    spec.dtype = *dtype;
    const auto shape = in.at("shape").items();
    if (shape.empty() || !shape[0].value().is_null()) in.fail("has no batch dimension");
    for (size_t i = 1; i < shape.size(); ++i) spec.shape.push_back(shape[i].integer(0, kMaxInt));
    if (!checkpoint::checked_bytes(spec)) in.fail("has an impossible shape");
    return spec;
  }

  int64_t define(const Reader& in) {
    const int64_t value = in.integer(0, std::max<int64_t>(num_values_ - 1, 0));
    if (num_values_ == 0 || defined_[static_cast<size_t>(value)])
      in.fail("value " + std::to_string(value) + " is defined twice");
    defined_[static_cast<size_t>(value)] = true;
    return value;
  }

  int64_t table_index(const Reader& in) const {
    if (file_.tensors.empty()) in.fail("there are no tensors");
    return in.integer(0, static_cast<int64_t>(file_.tensors.size()) - 1);
  }

  void read_body(const Reader& in, std::set<int64_t>& visible, Graph& graph) {
    for (const Reader& each : in.at("nodes").items()) {
      if (++num_nodes_ > kMaxNodes) each.fail("the program has too many nodes");
      graph.nodes.push_back(node(each, visible));
      visible.insert(graph.nodes.back().results.begin(), graph.nodes.back().results.end());
    }
    for (const Reader& output : in.at("outputs").items())
      graph.outputs.push_back(argument(output, visible));
  }

  Node node(const Reader& in, const std::set<int64_t>& visible) {
    Node node;
    if (const auto module = in.find("module")) node.module = shown(module->text());
    if (in.find("op"))
      read_operator(in, visible, node);
    else if (in.find("size"))
      read_size(in, visible, node);
    else
      read_construct(in, visible, node);
    for (const Reader& result : in.at("results").items()) node.results.push_back(define(result));
    return node;
  }

  void read_operator(const Reader& in, const std::set<int64_t>& visible, Node& node) const {
    node.kind = Node::Kind::kOperator;
    node.name = in.at("op").text();
    if (!file_.operators.contains(node.name))
      in.fail("the operator " + shown(node.name) + " is not in operators");
    for (const Reader& each : in.at("args").items())
      node.arguments.push_back(argument(each, visible));
    if (const auto keywords = in.find("kwargs"))
      for (const auto& [key, value] : keywords->object())
        node.keyword_arguments.emplace_back(
            std::string(key), argument(Reader(value, keywords->place()[key]), visible));
  }

  void read_size(const Reader& in, const std::set<int64_t>& visible, Node& node) const {
    node.kind = Node::Kind::kSize;
    node.name = in.at("size").text();
    if (std::ranges::find(kSizeFunctions, node.name) == kSizeFunctions.end() &&
        std::ranges::find(kMoreSizeFunctions, node.name) == kMoreSizeFunctions.end())
      in.fail("the function " + shown(node.name) + " is unknown");
    for (const Reader& each : in.at("args").items())
      node.arguments.push_back(argument(each, visible));
    if (node.arguments.size() != arity(node.name)) in.fail(node.name + " gets other arguments");
    if (in.at("results").items().size() != 1) in.fail("must have one result");
  }

  void read_construct(const Reader& in, const std::set<int64_t>& visible, Node& node) {
    node.name = in.at("call").text();
    size_t num_graphs = 1;
    if (node.name == "cond") {
      node.kind = Node::Kind::kCond;
      node.arguments.push_back(argument(in.at("predicate"), visible));
      num_graphs = 2;
    } else if (node.name == "set_grad_enabled") {
      node.kind = Node::Kind::kSetGradEnabled;
      node.arguments.push_back(flag(in.at("enabled")));
    } else if (node.name == "autocast") {
      node.kind = Node::Kind::kAutocast;
      node.arguments.push_back(flag(in.at("enabled")));
      node.arguments.push_back(argument(in.at("dtype"), visible));
      const auto kind = node.arguments.back().kind;
      if (kind != Argument::Kind::kNone && kind != Argument::Kind::kDtype)
        in.fail("dtype must be a dtype or null");
    } else {
      in.fail("the construct " + shown(node.name) + " is unknown");
    }
    const auto operands = in.at("operands").items();
    for (const Reader& each : operands) node.arguments.push_back(argument(each, visible));
    const auto graphs = in.at("graphs").items();
    const size_t results = in.at("results").items().size();
    if (graphs.size() != num_graphs)
      in.fail(node.name + " must have " + std::to_string(num_graphs) + " graphs");
    for (const Reader& each : graphs) {
      Graph graph;
      for (const Reader& input : each.at("inputs").items()) graph.inputs.push_back(define(input));
      std::set<int64_t> inner(graph.inputs.begin(), graph.inputs.end());
      read_body(each, inner, graph);
      if (graph.inputs.size() != operands.size() || graph.outputs.size() != results)
        each.fail("has other inputs or outputs than its node");
      node.graphs.push_back(std::move(graph));
    }
  }

  static Argument flag(const Reader& in) {
    return {
        .kind = Argument::Kind::kBool, .integer = in.boolean() ? 1 : 0, .text = {}, .items = {}};
  }

  Argument argument(const Reader& in, const std::set<int64_t>& visible) const {
    using Kind = Argument::Kind;
    Argument a;
    const json::value& value = in.value();
    if (value.is_null()) return a;
    if (value.is_bool()) return flag(in);
    if (value.is_int64()) {
      a.kind = Kind::kInt;
      a.integer = value.get_int64();
    } else if (value.is_string()) {
      a.kind = Kind::kText;
      a.text = in.text();
    } else if (value.is_array()) {
      a.kind = Kind::kList;
      for (const Reader& item : in.items()) a.items.push_back(argument(item, visible));
    } else if (value.is_object() && value.get_object().size() == 1) {
      read_tagged(in, visible, a);
    } else {
      in.fail("is not an argument");
    }
    return a;
  }

  void read_tagged(const Reader& in, const std::set<int64_t>& visible, Argument& a) const {
    using Kind = Argument::Kind;
    const std::string_view key = in.object().begin()->key();
    const Reader inner = in.at(std::string(key).c_str());
    if (key == "v") {
      a.kind = Kind::kValue;
      a.integer = inner.integer(0, kMaxInt);
      if (!visible.contains(a.integer))
        inner.fail("value " + std::to_string(a.integer) + " is used before it is computed");
    } else if (key == "t") {
      a.kind = Kind::kTensor;
      a.integer = table_index(inner);
    } else if (key == "f") {
      a.kind = Kind::kFloat;
      a.number = real(inner);
    } else {
      static const std::map<std::string_view, Kind> kKinds = {
          {"dtype", Kind::kDtype},
          {"device", Kind::kDevice},
          {"layout", Kind::kLayout},
          {"memory_format", Kind::kMemoryFormat}};
      const auto found = kKinds.find(key);
      if (found == kKinds.end()) in.fail("has an unknown key " + shown(key));
      a.kind = found->second;
      a.text = inner.text();
    }
  }

  // As Python's repr().
  static double real(const Reader& in) {
    const std::string text = in.text();
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) in.fail("is not a float");
    return number;
  }

  const GraphFile& file_;
  int64_t num_values_ = 0;
  size_t num_nodes_ = 0;
  std::vector<bool> defined_;
};

// ---- The table

void check_name(const Reader& in, const std::string& name) {
  if (const Status valid = checkpoint::check_tensor_name(name); !valid.ok())
    in.fail(valid.message());
  if (name.empty() || name.front() == '.' || name.back() == '.' ||
      name.find("..") != std::string::npos)
    in.fail("\"" + shown(name) + "\" is not a name");
}

TableEntry table_entry(const Reader& in) {
  TableEntry entry;
  entry.spec.name = in.at("name").text();
  check_name(in, entry.spec.name);
  const auto dtype = parse_dtype(in.at("dtype").text());
  if (!dtype) in.fail("has an unknown dtype");
  entry.spec.dtype = *dtype;
  for (const Reader& extent : in.at("shape").items())
    entry.spec.shape.push_back(extent.integer(0, kMaxInt));
  if (entry.spec.shape.size() > kMaxDims) in.fail("has too many dimensions");
  if (!checkpoint::checked_bytes(entry.spec)) in.fail("has an impossible shape");
  const std::string kind = in.at("kind").text();
  if (kind == "parameter")
    entry.kind = TableEntry::Kind::kParameter;
  else if (kind == "buffer")
    entry.kind = TableEntry::Kind::kBuffer;
  else if (kind == "constant")
    entry.kind = TableEntry::Kind::kConstant;
  else
    in.fail("has the unknown kind " + shown(kind));
  entry.requires_grad = in.at("requires_grad").boolean();
  entry.is_persistent = in.at("persistent").boolean();
  if (entry.requires_grad && entry.kind != TableEntry::Kind::kParameter)
    in.fail("only parameters have gradients");
  if (entry.kind == TableEntry::Kind::kParameter && entry.spec.dtype != DType::kF32)
    in.fail("parameters must be F32");
  return entry;
}

// A name must not be that of a module with other tensors: "a" and "a.b".
void check_names(const Reader& in, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const auto next = names.lower_bound(name + '.');
    if (next != names.end() && next->starts_with(name + '.'))
      in.fail(shown(name) + " is the name of a tensor and of a module");
  }
}

void read_table(const Reader& root, GraphFile& file) {
  const Reader tensors = root.at("tensors");
  std::set<std::string> names;
  bool is_trainable = false;
  for (const Reader& each : tensors.items()) {
    file.tensors.push_back(table_entry(each));
    is_trainable |= file.tensors.back().requires_grad;
    if (!names.insert(file.tensors.back().spec.name).second)
      each.fail("has a name that occurs twice");
  }
  if (!is_trainable) tensors.fail("no parameter has requires_grad");
  const std::set<std::string> kept = names;
  const Reader tied = root.at("tied");
  for (const auto& [key, value] : tied.object()) {
    const Reader in(value, tied.place()[key]);
    const std::string name(key), same = in.text();
    check_name(in, name);
    if (!names.insert(name).second) in.fail("is a name that occurs twice");
    if (!kept.contains(same)) in.fail("is tied to " + shown(same) + ", which is unknown");
    file.tied[name] = same;
  }
  check_names(tensors, names);
}

void read_operators(const Reader& root, GraphFile& file) {
  const Reader operators = root.at("operators");
  for (const auto& [key, value] : operators.object()) {
    const Reader in(value, operators.place()[key]);
    const std::string name(key), schema = in.text();
    if (!is_allowed(name)) in.fail("the operator is not allowed");
    if (!schema.starts_with(name + "(")) in.fail("has the schema of another operator");
    file.operators[name] = schema;
  }
}

// ---- The self-test

TestedTensor tested_tensor(const Reader& in) {
  TestedTensor tested;
  tested.sha256 = in.at("sha256").text();
  if (!checkpoint::is_sha256(tested.sha256)) in.fail("has no SHA-256");
  tested.norm = in.at("norm").finite();
  tested.projection = in.at("projection").finite();
  tested.bound = in.at("bound").finite();
  if (tested.bound < 0) in.fail("has a negative bound");
  return tested;
}

void read_self_test(const Reader& in, GraphFile& file) {
  SelfTest& test = file.self_test;
  test.seed = static_cast<uint64_t>(in.at("seed").integer(0, kMaxInt));
  test.loss = tested_tensor(in.at("loss"));
  test.eval_loss = tested_tensor(in.at("eval_loss"));
  const Reader gradients = in.at("gradients");
  for (const auto& [key, value] : gradients.object()) {
    const Reader each(value, gradients.place()[key]);
    auto& gradient = test.gradients[std::string(key)];
    if (!value.is_null()) gradient = tested_tensor(each);
  }
  const Reader buffers = in.at("buffers");
  for (const auto& [key, value] : buffers.object())
    test.buffers[std::string(key)] = tested_tensor(Reader(value, buffers.place()[key]));
  for (const TableEntry& entry : file.tensors) {
    if (entry.requires_grad && !test.gradients.contains(entry.spec.name))
      gradients.fail("has no " + shown(entry.spec.name));
    if (entry.kind == TableEntry::Kind::kBuffer && !test.buffers.contains(entry.spec.name))
      buffers.fail("has no " + shown(entry.spec.name));
  }
  for (const Reader& each : in.at("outputs").items()) test.outputs.push_back(tested_tensor(each));
}

// ---- The file

void check_interfaces(const Reader& programs, const GraphFile& file) {
  const auto& targets = file.train.inputs;
  const auto has_values = [&file](const Program& program) {
    const size_t of_metrics = 2 * file.metrics.size(), all = program.graph.outputs.size();
    return all == of_metrics + 1 || all == of_metrics + 2;
  };
  if (!has_values(file.train) || file.eval.graph.outputs.size() != file.train.graph.outputs.size())
    programs.fail(
        "train and eval must return the loss, or its sum and count, and those of each metric");
  if (!file.fields.empty() && file.fields.size() != targets.size())
    programs.fail("train and eval must have an input for each of fields");
  if (file.eval.inputs != targets || file.predict.inputs.size() != file.num_inputs ||
      targets.size() < file.num_inputs ||
      !std::ranges::equal(file.predict.inputs, std::span(targets).first(file.num_inputs)))
    programs.fail("have other inputs than each other");
  // A step can have losses and metrics alone.
  if ((file.predict.graph.outputs.empty() && file.fields.empty()) ||
      file.predict.graph.outputs.size() != file.self_test.outputs.size())
    programs.fail("predict must return the outputs of the self-test");
}

std::vector<std::string> names_in(const Reader& in) {
  std::vector<std::string> names;
  for (const Reader& each : in.items()) {
    names.push_back(each.text());
    check_name(each, names.back());
    if (std::ranges::count(names, names.back()) > 1) each.fail("occurs twice");
  }
  if (names.empty() || names.size() > kMaxFields) in.fail("must be some names");
  return names;
}

// The names; all else is read as a table of metrics.
std::vector<std::string> metrics_in(const Reader& in) {
  std::vector<std::string> names;
  for (const Reader& each : in.items()) {
    names.push_back(each.at("name").text());
    check_name(each, names.back());
    if (std::ranges::count(names, names.back()) > 1) each.fail("occurs twice");
  }
  if (names.size() > kMaxMetrics)
    in.fail("must be at most " + std::to_string(kMaxMetrics) + " metrics");
  return names;
}

std::vector<int64_t> min_steps_in(const Reader& in, const std::vector<TensorSpec>& inputs) {
  const auto items = in.items();
  if (items.size() != inputs.size()) in.fail("must have a number for each input of train");
  std::vector<int64_t> min_steps;
  for (size_t i = 0; i < items.size(); ++i)
    min_steps.push_back(items[i].integer(0, inputs[i].shape.empty() ? 0 : inputs[i].shape[0]));
  return min_steps;
}

GraphFile read_file(const Reader& root) {
  GraphFile file;
  file.torch = shown(root.at("torch").text());
  const Reader batch = root.at("batch");
  file.min_batch = batch.at("min").integer(1, kMaxInt);
  if (!batch.at("max").value().is_null())
    file.max_batch = batch.at("max").integer(file.min_batch, kMaxInt);
  if (const auto fields = root.find("fields")) file.fields = names_in(*fields);
  if (const auto metrics = root.find("metrics")) file.metrics = metrics_in(*metrics);
  const auto max_inputs = file.fields.empty() ? 2 : std::ssize(file.fields);
  file.num_inputs = static_cast<size_t>(root.at("num_inputs").integer(1, max_inputs));
  const Reader checkpointed = root.at("checkpointed");
  const auto modules = checkpointed.items();
  if (modules.size() > kMaxModules) checkpointed.fail("has too many modules");
  for (const Reader& module : modules)
    if (!module.text().empty()) file.recomputed.push_back(module.text());
  read_table(root, file);
  read_operators(root, file);
  const Reader programs = root.at("programs");
  for (auto& [name, program] : {std::pair<const char*, Program&>("train", file.train),
                                std::pair<const char*, Program&>("eval", file.eval),
                                std::pair<const char*, Program&>("predict", file.predict)})
    program = ProgramReader(file).read(programs.at(name));
  if (const auto min_steps = root.find("min_steps"))
    file.min_steps = min_steps_in(*min_steps, file.train.inputs);
  read_self_test(root.at("self_test"), file);
  if (const auto per_step = root.find("per_step"))
    for (const Reader& each : per_step->items()) file.per_step.push_back(each.boolean());
  check_interfaces(programs, file);
  const Reader files = root.at("files");
  for (auto& [name, sum] :
       {std::pair<const char*, std::string&>(kWeightsName, file.weights_sha256),
        std::pair<const char*, std::string&>(kSelfTestName, file.self_test_sha256)}) {
    sum = files.at(name).text();
    if (!checkpoint::is_sha256(sum)) files.at(name).fail("is not a SHA-256");
  }
  return file;
}

}  // namespace

Result<GraphFile> parse_graph_file(std::string_view text, const std::string& path) {
  boost::system::error_code error;
  const json::value document = parse_json(text, error, kMaxDepth);
  if (error) return Status(StatusCode::kCorrupt, path + ": not JSON: " + error.message());
  try {
    const Reader root(document, Place(""));
    const int64_t format = root.at("format").integer(0, kMaxInt);
    if (format != kGraphFormat)
      return Status(StatusCode::kMismatch, path + ": has format " + std::to_string(format) +
                                               ", this program reads format " +
                                               std::to_string(kGraphFormat) +
                                               "; export the module with its stoker-export");
    return read_file(root);
  } catch (const ReadError& wrong) {
    return Status(StatusCode::kCorrupt, path + ": " + wrong.what());
  }
}

}  // namespace stoker::graph
