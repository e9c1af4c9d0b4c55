#include "daemon/train/tensor_inspector.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/cat.h>
#include <boost/json.hpp>

#include "daemon/train/batch_view.h"
#include "daemon/train/tensor_statistics.h"
#include "shared/base/glob.h"
#include "shared/base/log.h"
#include "shared/base/utf8.h"
#include "shared/config/config_errors.h"

namespace stoker::train {
namespace {

namespace json = boost::json;

size_t max_tensors(const control::OpenInspection& request) {
  return request.histograms ? control::OpenInspection::kMaxHistograms
                            : control::OpenInspection::kMaxTensors;
}

json::object describe_batch(uint64_t ticket, const std::vector<std::string>& files) {
  json::array list;
  for (size_t i = 0; i < std::min(files.size(), control::OpenInspection::kMaxFiles); ++i)
    list.emplace_back(valid_utf8(files[i]));
  return {{"ticket", ticket}, {"num_files", files.size()}, {"files", std::move(list)}};
}

// `fields`: between the name and the values.
json::object describe_tensor(std::string_view kind, const std::string& name,
                             const metrics::TensorSummary& summary,
                             const json::object& fields = {}) {
  json::object tensor{{"kind", kind}, {"name", valid_utf8(name)}};
  tensor.insert(fields.begin(), fields.end());
  const json::object values = metrics::to_json(summary);
  tensor.insert(values.begin(), values.end());
  return tensor;
}

json::object describe_input(const TensorSpec& spec, const at::Tensor& tensor, bool with_histogram) {
  json::array shape;
  for (const int64_t size : tensor.sizes()) shape.emplace_back(size);
  return describe_tensor("input", spec.name,
                         read_statistics(enqueue_statistics(tensor, with_histogram)),
                         {{"dtype", to_string(spec.dtype)}, {"shape", std::move(shape)}});
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
  answer(done, json::serialize(json::object{{"inspection", *number},
                                            {"step", step},
                                            {"parameters", inspection->parameters.size()},
                                            {"gradients", inspection->gradients.size()},
                                            {"activations", inspection->outputs.size()},
                                            {"inputs", inspection->inputs.size()}}));
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
    inspection.batch.clear();
    inspection.inputs_seen.clear();
  }
}

void TensorInspector::on_batch(const feed::ReceivedBatch& batch, const FilesOf& files_of) {
  for (Inspection& inspection : inspections_) {
    if (!inspection.is_sampled || inspection.inputs.empty()) continue;
    inspection.batch = describe_batch(batch.ticket, files_of(batch.ticket));
    const std::vector<TensorSpec>& sample = batch.layout.sample();
    const task::Batch tensors = batch_view(batch);
    for (size_t i = 0; i < sample.size(); ++i) {
      if (std::ranges::find(inspection.inputs, sample[i].name) == inspection.inputs.end()) continue;
      inspection.inputs_seen.push_back(
          describe_input(sample[i], tensors[i], inspection.request.histograms));
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

std::string TensorInspector::format_record(uint64_t step, Inspection& inspection) {
  json::object record{{"step", step}};
  record.insert(inspection.batch.begin(), inspection.batch.end());
  json::array tensors = std::exchange(inspection.inputs_seen, {});
  if (!inspection.entries.empty()) {
    std::vector<at::Tensor> parts;
    for (const TensorEntry& one : inspection.entries) parts.push_back(one.statistics);
    const at::Tensor host = at::cat(parts).cpu();  // one copy for all tensors
    int64_t at = 0;
    for (const TensorEntry& one : inspection.entries) {
      const int64_t count = one.statistics.numel();
      tensors.push_back(
          describe_tensor(one.kind, one.name, read_statistics(host.narrow(0, at, count))));
      at += count;
    }
  }
  record["tensors"] = std::move(tensors);
  return json::serialize(record);
}

void TensorInspector::end_step() {
  for (Inspection& inspection : inspections_) {
    if (!inspection.is_sampled) continue;
    for (const auto& [name, parameter] : inspection.parameters)
      inspection.entries.push_back(
          {"parameter", name, enqueue_statistics(parameter, inspection.request.histograms)});
    // Only outputs were requested, and none of the modules ran.
    if (inspection.entries.empty() && inspection.inputs_seen.empty()) continue;
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
