#include "daemon/train/live_state.h"

#include <cmath>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::train {
namespace {

boost::json::object to_object(const LossTrend& trend) {
  boost::json::object object{{"sum", trend.sum}, {"weight", trend.weight}};
  if (trend.maybe_base) object["base"] = *trend.maybe_base;
  return object;
}

LossTrend parse_trend(const boost::json::object& object) {
  LossTrend trend{.sum = object.at("sum").to_number<double>(),
                  .weight = object.at("weight").to_number<double>()};
  if (const auto* base = object.if_contains("base")) trend.maybe_base = base->to_number<double>();
  return trend;
}

boost::json::object to_object(const Plateau& plateau) {
  boost::json::object object{{"num_bad", plateau.num_bad},
                             {"cooldown_left", plateau.cooldown_left},
                             {"loss_sum", plateau.loss_sum},
                             {"loss_steps", plateau.loss_steps}};
  if (plateau.maybe_best) object["best"] = *plateau.maybe_best;
  return object;
}

Plateau parse_plateau(const boost::json::object& object) {
  Plateau plateau{.maybe_best = std::nullopt,
                  .num_bad = object.at("num_bad").to_number<uint64_t>(),
                  .cooldown_left = object.at("cooldown_left").to_number<uint64_t>(),
                  .loss_sum = object.at("loss_sum").to_number<double>(),
                  .loss_steps = object.at("loss_steps").to_number<int64_t>()};
  if (const auto* best = object.if_contains("best")) plateau.maybe_best = best->to_number<double>();
  return plateau;
}

boost::json::array to_array(const config::LiveSettings& settings) {
  boost::json::array array;
  for (const config::LiveSetting& setting : settings)
    array.push_back(boost::json::object{
        {"key", setting.key}, {"value", setting.value}, {"configured", setting.configured}});
  return array;
}

config::LiveSetting parse_setting(const boost::json::object& object) {
  const auto text = [&object](const char* name) {
    return std::string(object.at(name).as_string());
  };
  return {.key = text("key"), .value = text("value"), .configured = text("configured")};
}

}  // namespace

std::string to_json(const LiveState& live) {
  boost::json::object object{
      {"lr_scale", live.lr_scale},
      {"skipped_steps", live.skipped_steps},
      {"consecutive_nonfinite", live.consecutive_nonfinite},
      {"rollbacks", live.rollbacks},
      {"loss_trend", to_object(live.loss_trend)},
      {"quarantined", boost::json::array(live.quarantined.begin(), live.quarantined.end())}};
  if (live.plateau != Plateau()) object["plateau"] = to_object(live.plateau);
  if (!live.settings.empty()) object["settings"] = to_array(live.settings);
  if (!live.batch_sizes.empty())
    object["batch_sizes"] = boost::json::parse(run::to_json(live.batch_sizes));
  return boost::json::serialize(object);
}

Result<LiveState> parse_live_state(const std::string& text) {
  const std::string place = "manifest.json: live";
  const auto read = [](const boost::json::object& fields) -> Result<LiveState> {
    LiveState live;
    if (const auto* scale = fields.if_contains("lr_scale"))
      live.lr_scale = scale->to_number<double>();
    if (const auto* steps = fields.if_contains("skipped_steps"))
      live.skipped_steps = steps->to_number<uint64_t>();
    if (const auto* consecutive = fields.if_contains("consecutive_nonfinite"))
      live.consecutive_nonfinite = consecutive->to_number<uint64_t>();
    if (const auto* trend = fields.if_contains("loss_trend"))
      live.loss_trend = parse_trend(trend->as_object());
    if (const auto* plateau = fields.if_contains("plateau"))
      live.plateau = parse_plateau(plateau->as_object());
    if (const auto* times = fields.if_contains("rollbacks"))
      live.rollbacks = times->to_number<uint64_t>();
    if (const auto* settings = fields.if_contains("settings"))
      for (const auto& setting : settings->as_array())
        live.settings.push_back(parse_setting(setting.as_object()));
    if (const auto* samples = fields.if_contains("quarantined"))
      for (const auto& sample : samples->as_array())
        live.quarantined.push_back(sample.to_number<uint64_t>());
    if (const auto* sizes = fields.if_contains("batch_sizes")) {
      STOKER_ASSIGN_OR_RETURN(live.batch_sizes,
                              run::parse_batch_sizes(boost::json::serialize(*sizes),
                                                     "manifest.json: live: batch_sizes"));
    }
    return live;
  };
  STOKER_ASSIGN_OR_RETURN(LiveState live, parse_json_object<LiveState>(text, place, read));
  if (!std::isfinite(live.lr_scale) || live.lr_scale <= 0)
    return Status(StatusCode::kCorrupt, place + ": lr_scale is not a positive number");
  return live;
}

}  // namespace stoker::train
