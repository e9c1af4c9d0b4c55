#include "daemon/train/tensor_inspector.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/cat.h>
#include <boost/json.hpp>

#include "daemon/train/batch_view.h"
#include "daemon/train/tensor_statistics.h"
#include "shared/base/glob.h"
#include "shared/base/log.h"
#include "shared/config/config_errors.h"

namespace stoker::train {
namespace {

size_t max_tensors(const control::OpenInspection& request) {
  return request.histograms ? control::OpenInspection::kMaxHistograms
                            : control::OpenInspection::kMaxTensors;
}

std::string json_string(const std::string& text) {
  return boost::json::serialize(boost::json::value(text));
}

// "[4,3,32,32]"
std::string format_shape(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ",") + std::to_string(size);
  return "[" + text + "]";
}

std::string format_batch(uint64_t ticket, std::vector<std::string> files) {
  const size_t num_files = files.size();
  files.resize(std::min(num_files, control::OpenInspection::kMaxFiles));
  std::string list;
  for (const std::string& file : files) list += (list.empty() ? "" : ",") + json_string(file);
  return ",\"ticket\":" + std::to_string(ticket) + ",\"num_files\":" + std::to_string(num_files) +
         ",\"files\":[" + list + "]";
}

std::string format_input(const TensorSpec& spec, const at::Tensor& tensor, bool with_histogram) {
  const auto summary = read_statistics(enqueue_statistics(tensor, with_histogram));
  return "{\"kind\":\"input\",\"name\":" + json_string(spec.name) + ",\"dtype\":\"" +
         std::string(to_string(spec.dtype)) + "\",\"shape\":" + format_shape(tensor.sizes()) + "," +
         metrics::to_json_fields(summary) + "}";
}

Status no_match(const std::string& glob, const std::vector<std::string>& names) {
  const std::string nearest = config::closest_match(glob, names);
  std::string text = "no tensor matches '" + glob + "'; ";
  if (!nearest.empty())
    return Status(StatusCode::kNotFound, text + "did you mean '" + nearest + "'?");
  text += "available:";
  const size_t each = std::max<size_t>(1, names.size() / 6);
  for (size_t i = 0; i < names.size(); i += each) text += " " + names[i];
  return Status(StatusCode::kNotFound, text);
}

}  // namespace

Result<TensorInspector::Inspection> TensorInspector::match(
    const control::OpenInspection& request) const {
  Inspection inspection{.request = request};
  const NameGlob glob(request.glob);
  std::vector<std::string> names;
  const auto matches = [&](const std::string& name) {
    names.push_back(name);
    return glob.matches(name);
  };
  if (request.parameters || request.gradients) {
    for (const auto& item : model_.named_parameters()) {
      if (!matches(item.key())) continue;
      if (request.parameters) inspection.parameters.emplace_back(item.key(), item.value());
      if (request.gradients && item.value().requires_grad())
        inspection.gradients.emplace_back(item.key(), item.value());
    }
  }
  if (request.activations) {
    for (const std::string& name : module_names(model_))
      if (matches(name)) inspection.outputs.push_back(name);
  }
  if (request.inputs) {
    for (const std::string& name : input_names_)
      if (matches(name)) inspection.inputs.push_back(name);
  }
  const size_t found = inspection.parameters.size() + inspection.gradients.size() +
                       inspection.outputs.size() + inspection.inputs.size();
  if (found == 0) return no_match(request.glob, names);
  if (found > max_tensors(request)) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + request.glob + "' matches " + std::to_string(found) +
                      " tensors; an inspection has at most " +
                      std::to_string(max_tensors(request)) +
                      (request.histograms ? " with histograms" : "") + "; match fewer");
  }
  return inspection;
}

void TensorInspector::open(const control::OpenInspection& command, uint64_t step,
                           const Done& done) {
  auto inspection = match(command);
  if (!inspection.ok()) return answer(done, inspection.status());
  const auto number = board_.open();
  if (!number.ok()) return answer(done, number.status());
  inspection->number = *number;
  if (!inspection->outputs.empty() && !outputs_) outputs_.emplace(model_);
  log_info("inspection started", {{"id", *number}, {"glob", command.glob}, {"step", step}});
  answer(done, "{\"inspection\":" + std::to_string(*number) + ",\"step\":" + std::to_string(step) +
                   ",\"parameters\":" + std::to_string(inspection->parameters.size()) +
                   ",\"gradients\":" + std::to_string(inspection->gradients.size()) +
                   ",\"activations\":" + std::to_string(inspection->outputs.size()) +
                   ",\"inputs\":" + std::to_string(inspection->inputs.size()) + "}");
  inspections_.push_back(*std::move(inspection));
}

void TensorInspector::begin_step(uint64_t step) {
  step_ = step;
  has_forward_ = false;
  std::erase_if(inspections_, [this](const Inspection& inspection) {
    if (board_.is_wanted(inspection.number)) return false;
    log_info("inspection ended", {{"id", inspection.number},
                                  {"glob", inspection.request.glob},
                                  {"step", step_},
                                  {"records", inspection.rows}});
    return true;
  });
  for (Inspection& inspection : inspections_) {
    inspection.is_sampled = step % inspection.request.every == 0;
    inspection.entries.clear();
    inspection.batch_fields.clear();
    inspection.input_list.clear();
  }
}

void TensorInspector::on_batch(const feed::ReceivedBatch& batch, const FilesOf& files_of) {
  for (Inspection& inspection : inspections_) {
    if (!inspection.is_sampled || inspection.inputs.empty()) continue;
    inspection.batch_fields = format_batch(batch.ticket, files_of(batch.ticket));
    const std::vector<TensorSpec>& sample = batch.layout.sample();
    const task::Batch tensors = batch_view(batch);
    for (size_t i = 0; i < sample.size(); ++i) {
      if (std::ranges::find(inspection.inputs, sample[i].name) == inspection.inputs.end()) continue;
      inspection.input_list += (inspection.input_list.empty() ? "" : ",") +
                               format_input(sample[i], tensors[i], inspection.request.histograms);
    }
  }
}

void TensorInspector::begin_forward() {
  const bool first = !std::exchange(has_forward_, true);
  const bool wanted =
      std::any_of(inspections_.begin(), inspections_.end(), [](const Inspection& inspection) {
        return inspection.is_sampled && !inspection.outputs.empty();
      });
  if (!first || !wanted) return;
  outputs_->start(
      [this](const std::string& module, const at::Tensor& output) { on_output(module, output); });
}

void TensorInspector::end_forward() noexcept {
  if (outputs_) outputs_->stop();
}

void TensorInspector::on_output(const std::string& module, const at::Tensor& output) {
  for (Inspection& inspection : inspections_) {
    if (!inspection.is_sampled) continue;
    if (std::find(inspection.outputs.begin(), inspection.outputs.end(), module) ==
        inspection.outputs.end())
      continue;
    std::erase_if(inspection.entries,
                  [&module](const TensorEntry& entry) { return entry.name == module; });
    inspection.entries.push_back(
        {"activation", module, enqueue_statistics(output, inspection.request.histograms)});
  }
}

void TensorInspector::on_gradients() {
  for (Inspection& inspection : inspections_) {
    if (!inspection.is_sampled) continue;
    for (const auto& [name, parameter] : inspection.gradients) {
      if (!parameter.grad().defined()) continue;
      inspection.entries.push_back(
          {"gradient", name, enqueue_statistics(parameter.grad(), inspection.request.histograms)});
    }
  }
}

std::string TensorInspector::format_record(uint64_t step, const Inspection& inspection) {
  std::string row = "{\"step\":" + std::to_string(step) + inspection.batch_fields +
                    ",\"tensors\":[" + inspection.input_list;
  if (inspection.entries.empty()) return row + "]}";
  if (!inspection.input_list.empty()) row += ",";
  std::vector<at::Tensor> parts;
  for (const TensorEntry& one : inspection.entries) parts.push_back(one.statistics);
  const at::Tensor host = at::cat(parts).cpu();  // one copy for all tensors
  int64_t at = 0;
  for (const TensorEntry& one : inspection.entries) {
    const auto summary = read_statistics(host.narrow(0, at, one.statistics.numel()));
    row += (at == 0 ? "" : ",") + ("{\"kind\":\"" + std::string(one.kind)) +
           "\",\"name\":" + json_string(one.name) + "," + metrics::to_json_fields(summary) + "}";
    at += one.statistics.numel();
  }
  return row + "]}";
}

void TensorInspector::end_step() {
  for (Inspection& inspection : inspections_) {
    if (!inspection.is_sampled) continue;
    for (const auto& [name, parameter] : inspection.parameters)
      inspection.entries.push_back(
          {"parameter", name, enqueue_statistics(parameter, inspection.request.histograms)});
    // Only outputs were requested, and none of the modules ran.
    if (inspection.entries.empty() && inspection.input_list.empty()) continue;
    board_.push(inspection.number, format_record(step_, inspection));
    ++inspection.rows;
    if (inspection.request.steps == 0 || inspection.rows < inspection.request.steps) continue;
    board_.end(inspection.number, "all requested steps are recorded");
    log_info("inspection ended", {{"id", inspection.number},
                                  {"glob", inspection.request.glob},
                                  {"step", step_},
                                  {"records", inspection.rows}});
  }
  std::erase_if(inspections_, [](const Inspection& inspection) {
    return inspection.request.steps > 0 && inspection.rows >= inspection.request.steps;
  });
}

void TensorInspector::end_all(const std::string& why) {
  board_.end_all(why);
  inspections_.clear();
}

}  // namespace stoker::train
