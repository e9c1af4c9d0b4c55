#include "evaluator/load_run_config.h"

#include <utility>
#include <variant>

#include "shared/config/owned_config.h"

namespace stoker::evaluator {
namespace {

struct Setting {
  const char* key;
  bool is_risky;
};

// ", and with KEY and KEY EFFECT"; empty if no setting is risky.
std::string describe(const std::vector<Setting>& settings, const char* effect) {
  std::string keys;
  for (const auto& [key, is_risky] : settings)
    if (is_risky) keys += (keys.empty() ? ", and with " : " and ") + std::string(key);
  return keys.empty() ? "" : keys + effect;
}

// Whether files are written to, and removed from, a folder that the configuration chooses.
bool has_cache_folder(const config::Config& config) {
  const auto has_folder = [](const auto& format) {
    bool has = false;
    if constexpr (requires { format.cache; }) has = format.cache && format.cache->dir;
    if constexpr (requires { format.token_cache; })
      has = has || (format.token_cache && format.token_cache->dir);
    return has;
  };
  return std::ranges::any_of(
      config.data, [&](const auto& one) { return std::visit(has_folder, one.second.source); });
}

// What requires trust in the author of the configuration, who also chooses the data, whether the
// configuration or the caller has set it; empty if nothing does.
std::string list_risks(const config::Config& config) {
  return describe({{"model.path", config.model.is_user_code()},
                   {"eval.on_best_command", !config.eval.on_best_command.empty()}},
                  ", code would run with your permissions") +
         describe({{"feed.sandbox", !config.feed.sandbox},
                   {"feed.num_processes", config.feed.num_processes == 0}},
                  ", data would be read without a sandbox") +
         describe({{"cache.dir", has_cache_folder(config)}},
                  ", files would be written with your permissions");
}

}  // namespace

Result<config::Config> load_run_config(const std::string& path,
                                       const std::vector<std::string>& overrides, bool trust) {
  STOKER_ASSIGN_OR_RETURN(auto file, config::load_owned_config(path, overrides));
  const std::string risks = list_risks(file.config);
  if (trust || risks.empty()) return std::move(file.config);
  if (!file.is_own)
    return Status(StatusCode::kPermission, path + ": belongs to uid " + std::to_string(file.uid) +
                                               risks + "; check it, then use --trust");
  if (file.is_writable_by_others)  // stokerd writes it with mode 0640
    return Status(StatusCode::kPermission, path + ": other users can write to it" + risks +
                                               "; check it, then chmod go-w " + path +
                                               ", or use --trust");
  return std::move(file.config);
}

}  // namespace stoker::evaluator
