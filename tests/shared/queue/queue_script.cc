#include "tests/shared/queue/queue_script.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/tensor_spec.h"

namespace stoker::queue {
namespace {

namespace json = boost::json;

Status invalid_line(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// TensorFlow's names, where it has one for the condition.
std::string error_name(StatusCode code) {
  if (code == StatusCode::kInvalidArgument) return "INVALID_ARGUMENT";
  if (code == StatusCode::kCancelled) return "CANCELLED";
  if (code == StatusCode::kClosed) return "OUT_OF_RANGE";
  if (code == StatusCode::kTimedOut) return "DEADLINE_EXCEEDED";
  if (code == StatusCode::kInternal) return "INTERNAL";
  return std::string(to_string(code));
}

// Calls `visit` with a value of the C++ type of `dtype`.
template <typename Visit>
Status visit_dtype(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kU8:
      visit(uint8_t{});
      return {};
    case DType::kU16:
      visit(uint16_t{});
      return {};
    case DType::kI8:
      visit(int8_t{});
      return {};
    case DType::kI16:
      visit(int16_t{});
      return {};
    case DType::kI32:
      visit(int32_t{});
      return {};
    case DType::kI64:
      visit(int64_t{});
      return {};
    case DType::kF32:
      visit(float{});
      return {};
    case DType::kF64:
      visit(double{});
      return {};
    case DType::kBool:
      visit(bool{});
      return {};
    case DType::kF16:
    case DType::kBF16:
      return invalid_line("a script cannot contain " + std::string(to_string(dtype)));
  }
  return invalid_line("unknown dtype");
}

template <typename T>
T number_from(const json::value& value) {
  if (value.is_bool()) return static_cast<T>(value.get_bool());
  if (value.is_int64()) return static_cast<T>(value.get_int64());
  return static_cast<T>(value.to_number<double>());
}

json::value number_to(double value) {
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return static_cast<int64_t>(value);
  return value;
}

Result<Shape> parse_shape(const json::value& value) {
  std::vector<int64_t> extents;
  for (const json::value& extent : value.as_array())
    extents.push_back(extent.is_null() ? kUnknownExtent : extent.to_number<int64_t>());
  return Shape::make(extents);
}

// The scalars of `value` in order; false if its arrays differ in length from `shape`.
bool flatten(const json::value& value, const Shape& shape, size_t dimension,
             std::vector<const json::value*>& scalars) {
  if (dimension == shape.rank()) {
    scalars.push_back(&value);
    return !value.is_array();
  }
  if (!value.is_array() || value.get_array().size() != static_cast<size_t>(shape[dimension]))
    return false;
  return std::ranges::all_of(value.get_array(), [&](const json::value& element) {
    return flatten(element, shape, dimension + 1, scalars);
  });
}

// Nested arrays to a tensor; an array without elements needs the shape.
Result<Tensor> parse_tensor(const json::value& value, DType dtype, std::optional<Shape> shape) {
  if (!shape) {
    std::vector<int64_t> extents;
    for (const json::value* inner = &value; inner->is_array(); inner = &inner->get_array()[0]) {
      extents.push_back(static_cast<int64_t>(inner->get_array().size()));
      if (inner->get_array().empty()) break;
    }
    STOKER_ASSIGN_OR_RETURN(shape, Shape::make(extents));
  }
  STOKER_ASSIGN_OR_RETURN(Tensor tensor, Tensor::allocate(dtype, *shape));
  std::vector<const json::value*> scalars;
  if (tensor.bytes() > 0 && !flatten(value, *shape, 0, scalars))
    return invalid_line("a value does not have shape " + to_string(*shape));
  std::byte* bytes = tensor.mutable_data();
  STOKER_RETURN_IF_ERROR(visit_dtype(dtype, [&](auto type) {
    for (const json::value* scalar : scalars) {
      type = number_from<decltype(type)>(*scalar);
      std::memcpy(bytes, &type, sizeof(type));
      bytes += sizeof(type);
    }
  }));
  return tensor;
}

json::value to_json(const Tensor& tensor) {
  if (tensor.rank() > 0) {
    json::array array;
    for (int64_t i = 0; i < tensor.shape()[0]; ++i) array.push_back(to_json(tensor.slice(i)));
    return array;
  }
  json::value value;
  (void)visit_dtype(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, bool>)
      value = tensor.value<T>();
    else if constexpr (std::is_integral_v<T>)
      value = static_cast<int64_t>(tensor.value<T>());
    else
      value = number_to(tensor.value<T>());
  });
  return value;
}

json::value to_json(const Tuple& tuple, const Queue& queue) {
  if (queue.components()[0].name.empty()) {
    json::array array;
    for (const Tensor& tensor : tuple) array.push_back(to_json(tensor));
    return array;
  }
  json::object object;
  for (size_t i = 0; i < tuple.size(); ++i) object[queue.components()[i].name] = to_json(tuple[i]);
  return object;
}

// Declared dtypes are the default of "dtypes", the shapes of the arrays that of "shapes".
Result<Tuple> parse_tuple(const json::object& operation, const Queue& queue) {
  const json::value& value = operation.at("value");
  const auto parse = [&](const json::value& component, size_t i, DType dtype) -> Result<Tensor> {
    if (const json::value* dtypes = operation.if_contains("dtypes")) {
      const auto given = parse_dtype(dtypes->as_array().at(i).as_string());
      if (!given) return invalid_line("unknown dtype");
      dtype = *given;
    }
    std::optional<Shape> shape;
    if (const json::value* shapes = operation.if_contains("shapes")) {
      STOKER_ASSIGN_OR_RETURN(shape, parse_shape(shapes->as_array().at(i)));
    }
    return parse_tensor(component, dtype, shape);
  };
  if (value.is_object()) {
    std::vector<std::pair<std::string, Tensor>> named;
    for (const auto& [name, component] : value.get_object()) {
      const auto declared =
          std::ranges::find(queue.components(), std::string(name), &Component::name);
      const DType dtype = declared == queue.components().end() ? DType::kI64 : declared->dtype;
      STOKER_ASSIGN_OR_RETURN(Tensor tensor, parse(component, named.size(), dtype));
      named.emplace_back(std::string(name), std::move(tensor));
    }
    return queue.arrange(std::move(named));
  }
  Tuple tuple;
  for (const json::value& component : value.as_array()) {
    const DType dtype = tuple.size() < queue.components().size()
                            ? queue.components()[tuple.size()].dtype
                            : DType::kI64;
    STOKER_ASSIGN_OR_RETURN(Tensor tensor, parse(component, tuple.size(), dtype));
    tuple.push_back(std::move(tensor));
  }
  return tuple;
}

Result<QueueOptions> parse_options(const json::object& operation) {
  QueueOptions options;
  options.name = std::string(operation.at("queue").as_string());
  const std::string_view type = operation.at("type").as_string();
  bool known = false;
  for (const QueueType candidate : {QueueType::kFIFO, QueueType::kRandomShuffle,
                                    QueueType::kPaddingFIFO, QueueType::kPriority}) {
    if (type != to_string(candidate)) continue;
    options.type = candidate;
    known = true;
  }
  if (!known) return invalid_line("unknown type of queue: " + std::string(type));
  if (const auto* capacity = operation.if_contains("capacity"))
    options.capacity = capacity->to_number<int64_t>();
  if (const auto* min = operation.if_contains("min_after_dequeue"))
    options.min_after_dequeue = min->to_number<int64_t>();
  if (const auto* seed = operation.if_contains("seed")) options.seed = seed->to_number<uint64_t>();
  const json::array& dtypes = operation.at("dtypes").as_array();
  for (size_t i = 0; i < dtypes.size(); ++i) {
    Component component;
    const auto dtype = parse_dtype(dtypes[i].as_string());
    if (!dtype) return invalid_line("unknown dtype");
    component.dtype = *dtype;
    if (const json::value* shapes = operation.if_contains("shapes")) {
      STOKER_ASSIGN_OR_RETURN(component.shape, parse_shape(shapes->as_array().at(i)));
    }
    if (const json::value* names = operation.if_contains("names"))
      component.name = std::string(names->as_array().at(i).as_string());
    options.components.push_back(std::move(component));
  }
  return options;
}

// The outcome of one operation.
Result<json::value> run_operation(Queue& queue, const json::object& operation,
                                  const std::stop_token& stop) {
  const std::string_view op = operation.at("op").as_string();
  Deadline deadline = kNoDeadline;
  if (const json::value* timeout = operation.if_contains("timeout_ms"))
    deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout->to_number<int64_t>());
  if (op == "enqueue" || op == "enqueue_many") {
    STOKER_ASSIGN_OR_RETURN(Tuple tuple, parse_tuple(operation, queue));
    STOKER_RETURN_IF_ERROR(op == "enqueue" ? queue.enqueue(std::move(tuple), stop, deadline)
                                           : queue.enqueue_many(std::move(tuple), stop, deadline));
    return json::value(nullptr);
  }
  if (op == "close") {
    const json::value* cancel = operation.if_contains("cancel_pending_enqueues");
    const json::value* cause = operation.if_contains("cause");
    STOKER_RETURN_IF_ERROR(queue.close(
        cancel != nullptr && cancel->as_bool(), stop, deadline,
        cause == nullptr ? Status()
                         : Status(StatusCode::kInternal, std::string(cause->as_string()))));
    return json::value(nullptr);
  }
  if (op == "dequeue") {
    STOKER_ASSIGN_OR_RETURN(const Tuple element, queue.dequeue(stop, deadline));
    return to_json(element, queue);
  }
  if (op == "dequeue_many" || op == "dequeue_up_to") {
    const auto n = operation.at("n").to_number<int64_t>();
    STOKER_ASSIGN_OR_RETURN(const Tuple batch, op == "dequeue_many"
                                                   ? queue.dequeue_many(n, stop, deadline)
                                                   : queue.dequeue_up_to(n, stop, deadline));
    return to_json(batch, queue);
  }
  if (op == "size") return json::value(queue.size());
  if (op == "is_closed") return json::value(queue.is_closed());
  return invalid_line("unknown operation: " + std::string(op));
}

json::object make_outcome(const Result<json::value>& result) {
  json::object outcome;
  if (!result.ok()) {
    outcome["error"] = error_name(result.status().code());
    outcome["message"] = result.status().message();
  } else if (result->is_null()) {
    outcome["ok"] = true;
  } else {
    outcome["value"] = *result;
  }
  return outcome;
}

Result<json::value> run_catching(Queue& queue, const json::object& operation,
                                 const std::stop_token& stop) {
  try {
    return run_operation(queue, operation, stop);
  } catch (const std::exception& error) {  // of Boost.JSON: a field is missing, or of another type
    return invalid_line(error.what());
  }
}

}  // namespace

QueueScript::~QueueScript() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, thread] : threads_)
      if (thread.steps.size() > 1) thread.steps.resize(1);
  }
  for (auto& [name, thread] : threads_) thread.thread.request_stop();
  for (const auto& step : unreported_) step->stop.request_stop();
  threads_.clear();
}

Status QueueScript::run_line(std::string_view line) {
  ++line_;
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  boost::system::error_code error;
  json::value value = parse_json(line, error);
  if (error || !value.is_object())
    return invalid_line("line " + std::to_string(line_) + " is not a JSON object");
  try {
    return run_object(std::move(value.get_object())).with_context("line " + std::to_string(line_));
  } catch (const std::exception& wrong) {
    return invalid_line("line " + std::to_string(line_) + ": " + wrong.what());
  }
}

Status QueueScript::finish() {
  STOKER_RETURN_IF_ERROR(wait_idle());
  const std::lock_guard lock(mutex_);
  for (auto step = unreported_.begin(); step != unreported_.end();) {
    const bool completed = !(*step)->outcome.empty();
    if (completed) {
      report(**step, (*step)->outcome);
    } else if ((*step)->started && !(*step)->reported_blocked) {
      json::object blocked;
      blocked["blocked"] = true;
      report(**step, blocked);
      (*step)->reported_blocked = true;
    }
    step = completed ? unreported_.erase(step) : std::next(step);
  }
  out_.flush();
  return {};
}

void QueueScript::report(const Step& step, const json::object& outcome) {
  json::object line;
  line["id"] = step.id;
  for (const std::string_view key : {"at", "op"})
    if (const json::value* value = step.operation.if_contains(key)) line[key] = *value;
  for (const auto& [key, value] : outcome) line[key] = value;
  out_ << json::serialize(line) << '\n';
}

Status QueueScript::run_object(json::object operation) {
  if (operation.contains("id")) return {};
  ++id_;
  const std::string_view op = operation.at("op").as_string();
  if (op == "wait_idle") return finish();
  if (op == "cancel") return cancel(std::string(operation.at("at").as_string()));
  if (operation.contains("at")) return submit(std::move(operation));
  STOKER_RETURN_IF_ERROR(finish());
  Step step;
  step.id = id_;
  step.operation = operation;
  if (op == "make") {
    if (const Status status = make(operation); !status.ok()) report(step, make_outcome(status));
    return {};
  }
  if (op != "size" && op != "is_closed") return invalid_line("this operation needs \"at\"");
  STOKER_ASSIGN_OR_RETURN(Queue* const queue, find_queue(operation));
  report(step, make_outcome(run_catching(*queue, operation, {})));
  return {};
}

Status QueueScript::make(const json::object& operation) {
  STOKER_ASSIGN_OR_RETURN(QueueOptions options, parse_options(operation));
  auto& entry = queues_[options.name];
  if (entry != nullptr) return invalid_line("there is a queue '" + options.name + "'");
  STOKER_ASSIGN_OR_RETURN(entry, Queue::create(std::move(options)));
  entry->set_wait_observer(this);
  return {};
}

Result<Queue*> QueueScript::find_queue(const json::object& operation) {
  const auto found = queues_.find(std::string(operation.at("queue").as_string()));
  if (found == queues_.end() || found->second == nullptr)
    return invalid_line("there is no queue '" + std::string(operation.at("queue").as_string()) +
                        "'");
  return found->second.get();
}

Status QueueScript::submit(json::object operation) {
  STOKER_RETURN_IF_ERROR(find_queue(operation).status());
  const std::string name(operation.at("at").as_string());
  auto step = std::make_shared<Step>();
  step->id = id_;
  step->operation = std::move(operation);
  const std::lock_guard lock(mutex_);
  unreported_.push_back(step);
  const auto [entry, is_new] = threads_.try_emplace(name);
  ScriptThread& thread = entry->second;
  if (thread.steps.empty()) ++active_;
  thread.steps.push_back(std::move(step));
  if (is_new)
    thread.thread =
        std::jthread([this, &thread](const std::stop_token& stop) { run_thread(stop, thread); });
  changed_.notify_all();
  return {};
}

Status QueueScript::cancel(const std::string& name) {
  STOKER_RETURN_IF_ERROR(finish());
  std::shared_ptr<Step> step;
  {
    const std::lock_guard lock(mutex_);
    const auto found = threads_.find(name);
    if (found == threads_.end() || found->second.steps.empty()) return {};
    step = found->second.steps.front();
  }
  step->stop.request_stop();  // without the mutex: it ends the wait in the queue
  return {};
}

void QueueScript::run_thread(const std::stop_token& stop, ScriptThread& thread) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !thread.steps.empty(); })) {
    const std::shared_ptr<Step> step = thread.steps.front();
    step->started = true;
    lock.unlock();
    const auto queue = find_queue(step->operation);
    const Result<json::value> result =
        run_catching(**queue, step->operation, step->stop.get_token());
    lock.lock();
    step->outcome = make_outcome(result);
    thread.steps.pop_front();
    if (thread.steps.empty()) --active_;
    changed_.notify_all();
  }
}

Status QueueScript::wait_idle() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kIdleTimeout, [&] { return active_ == 0; }))
    return Status(StatusCode::kTimedOut, "the threads did not become idle");
  return {};
}

void QueueScript::wait_started() {
  const std::lock_guard lock(mutex_);
  --active_;
  changed_.notify_all();
}

void QueueScript::wait_ended() {
  const std::lock_guard lock(mutex_);
  ++active_;
}

}  // namespace stoker::queue
