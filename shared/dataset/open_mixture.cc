// open_dataset() and open_indexed() of any named set: a mixture or concat opens the sets that it is of.
#include <functional>
#include <utility>
#include <variant>

#include "shared/dataset/dataset.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/mixture_dataset.h"

namespace stoker::dataset {
namespace {

using OpenOne = std::function<Result<std::unique_ptr<Dataset>>(const std::string& name,
                                                               const config::DatasetConfig& set)>;

Result<const config::DatasetConfig*> find_set(const std::string& name,
                                              const config::DatasetConfigs& sets) {
  const auto found = sets.find(name);
  if (found == sets.end())
    return Status(Code::kInvalidArgument, "data." + name + ": there is no such data set");
  return &found->second;
}

Result<std::unique_ptr<Dataset>> open_mixture(const std::string& name,
                                              const config::DatasetConfig& mixture,
                                              const config::DatasetConfigs& sets,
                                              const OpenOne& open_one) {
  const std::vector<std::string> parts = mixture.components();
  if (parts.empty()) {
    const bool has_shares = std::holds_alternative<config::Mixture>(mixture.source);
    return Status(Code::kInvalidArgument,
                  "data." + name + (has_shares ? ".mixture" : ".concat") + ": names no data set");
  }
  std::vector<NamedSet> opened;
  for (const std::string& part : parts) {
    STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const set, find_set(part, sets));
    STOKER_ASSIGN_OR_RETURN(auto data, open_one(part, *set));
    opened.push_back({.name = part, .data = std::move(data)});
  }
  return make_mixture(name, std::move(opened));
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& set_name,
                                              const config::DatasetConfigs& sets,
                                              const std::string& index_dir,
                                              const ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const set, find_set(set_name, sets));
  if (!set->combines_datasets()) return open_dataset(set_name, *set, index_dir, progress);
  return open_mixture(set_name, *set, sets,
                      [&](const std::string& name, const config::DatasetConfig& part) {
                        return open_dataset(name, part, index_dir, progress);
                      });
}

Result<std::unique_ptr<Dataset>> open_indexed(const std::string& set_name,
                                              const config::DatasetConfigs& sets,
                                              const std::string& index_dir,
                                              const std::string& fingerprint) {
  STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const set, find_set(set_name, sets));
  if (!set->combines_datasets()) return open_indexed(set_name, *set, index_dir, fingerprint);
  STOKER_ASSIGN_OR_RETURN(
      auto mixture, open_mixture(set_name, *set, sets,
                                 [&](const std::string& name, const config::DatasetConfig& part) {
                                   return open_indexed(name, part, index_dir, "");
                                 }));
  STOKER_RETURN_IF_ERROR(check_fingerprint(*mixture, fingerprint, "data." + set_name));
  return mixture;
}

}  // namespace stoker::dataset
