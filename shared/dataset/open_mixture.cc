// open_dataset() and open_indexed() of any named set: a mixture or concat opens the sets that it is of.
#include <functional>
#include <utility>
#include <variant>

#include "shared/dataset/dataset.h"
#include "shared/dataset/format.h"
#include "shared/dataset/mixture_dataset.h"

namespace stoker::dataset {
namespace {

using OpenOne = std::function<Result<std::unique_ptr<Dataset>>(
    const std::string& name, const config::DatasetConfig& dataset)>;

Result<const config::DatasetConfig*> find_dataset(const std::string& name,
                                                  const config::DatasetConfigs& datasets) {
  const auto found = datasets.find(name);
  if (found == datasets.end())
    return Status(StatusCode::kInvalidArgument, "data." + name + ": there is no such data set");
  return &found->second;
}

Result<std::unique_ptr<Dataset>> open_mixture(const std::string& name,
                                              const config::DatasetConfig& mixture,
                                              const config::DatasetConfigs& datasets,
                                              const OpenOne& open_one) {
  const std::vector<std::string> parts = mixture.components();
  if (parts.empty()) {
    const bool has_shares = std::holds_alternative<config::Mixture>(mixture.source);
    return Status(StatusCode::kInvalidArgument,
                  "data." + name + (has_shares ? ".mixture" : ".concat") + ": names no data set");
  }
  std::vector<NamedDataset> opened;
  for (const std::string& part : parts) {
    STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const dataset,
                            find_dataset(part, datasets));
    STOKER_ASSIGN_OR_RETURN(auto data, open_one(part, *dataset));
    opened.push_back({.name = part, .data = std::move(data)});
  }
  return make_mixture(name, std::move(opened));
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const dataset,
                          find_dataset(dataset_name, datasets));
  if (!dataset->combines_datasets())
    return open_dataset(dataset_name, *dataset, index_dir, progress);
  return open_mixture(dataset_name, *dataset, datasets,
                      [&](const std::string& name, const config::DatasetConfig& part) {
                        return open_dataset(name, part, index_dir, progress);
                      });
}

Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const std::string& fingerprint) {
  STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const dataset,
                          find_dataset(dataset_name, datasets));
  if (!dataset->combines_datasets())
    return open_indexed(dataset_name, *dataset, index_dir, fingerprint);
  STOKER_ASSIGN_OR_RETURN(
      auto mixture, open_mixture(dataset_name, *dataset, datasets,
                                 [&](const std::string& name, const config::DatasetConfig& part) {
                                   return open_indexed(name, part, index_dir, "");
                                 }));
  STOKER_RETURN_IF_ERROR(check_fingerprint(*mixture, fingerprint, "data." + dataset_name));
  return mixture;
}

}  // namespace stoker::dataset
