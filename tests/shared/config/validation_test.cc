// Conditions between settings of different sections.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ValidationTest, RequiresModelWithOutputPerTimeStep) {
  const std::string data = "data: {train: {format: numpy, path: a}}\n";
  const std::string labeling = data + "task: {name: sequence_labeling}\n";
  valid_config(labeling + "model: {name: blstm}\n");
  EXPECT_THAT(
      errors_of(labeling + "model: {name: blstm, pooling: mean}\n"),
      ElementsAre("my.yaml:3:31: model.pooling: must be none for task sequence_labeling, got "
                  "'mean'"));
  EXPECT_THAT(errors_of(data + "task: {name: classification}\n"
                               "model: {name: blstm, pooling: none}\n"),
              ElementsAre(HasSubstr("model.pooling: must be last or mean for task classification, "
                                    "got 'none'")));
  for (const std::string name : {"mlp", "lenet5", "resnet18", "vit", "vgg11", "alexnet"})
    EXPECT_THAT(
        errors_of(labeling + "model: {name: " + name + "}\n"),
        ElementsAre(HasSubstr("task.name: sequence_labeling requires a model with an output "
                              "per time step; set model blstm")))
        << name;
}

TEST(ValidationTest, DerivesSingleOutputOfBinaryClassification) {
  const std::string binary =
      "data: {train: {format: synthetic, num_samples: 8, input_shape: [4], label_rule: "
      "sum_positive}}\ntask: {name: binary_classification, pos_weight: 2}\nmodel: {name: mlp}\n";
  const Config config = valid_config(binary);
  EXPECT_EQ(config.model.num_classes, 1);
  EXPECT_EQ(std::get<BinaryClassificationTask>(config.task.task).pos_weight, 2);
  EXPECT_EQ(valid_config(binary, {"model.num_classes=1"}), config);
  EXPECT_THAT(
      errors_of(binary, {"model.num_classes=2"}),
      ElementsAre(HasSubstr("model.num_classes=2: must be 1 for task binary_classification, "
                            "which has one logit, got 2; remove it")));
  EXPECT_THAT(errors_of(binary, {"task={name: classification}", "model.num_classes=1"}),
              ElementsAre(HasSubstr("model.num_classes=1: must be at least 2 for task "
                                    "classification; for one logit set task "
                                    "binary_classification")));
  EXPECT_THAT(errors_of(binary, {"task.pos_weight=0"}),
              ElementsAre(HasSubstr("task.pos_weight=0: must be a number above 0")));
  EXPECT_THAT(errors_of(binary, {"data.train.num_classes=3"}),
              ElementsAre(HasSubstr("data.train.num_classes=3: must be 2 for label_rule "
                                    "sum_positive; remove it")));
}

TEST(ValidationTest, RequiresWeightAboveZeroForSomeClass) {
  const std::string images = kImageData + "model: {name: mlp}\n";
  EXPECT_THAT(errors_of(images, {"task.class_weights=[0, 0]"}),
              ElementsAre(HasSubstr("must have a number above 0")));
  EXPECT_THAT(errors_of(images, {"task.class_weights=[1, -1]"}),
              ElementsAre(HasSubstr("must be a number from 0 to 1000000, got '-1'")));
  EXPECT_THAT(errors_of(images, {"task={name: multilabel_classification, pos_weight: [0]}"}),
              ElementsAre(HasSubstr("task.pos_weight: must have a number above 0")));
  EXPECT_EQ(
      std::get<ClassificationTask>(valid_config(images, {"task.class_weights=[0, 2.5]"}).task.task)
          .class_weights.values,
      (std::vector<double>{0, 2.5}));
}

TEST(ValidationTest, BalancesWeightsOnlyIfLabelsCanBeCounted) {
  const std::string images =
      "data: {train: {format: cifar10, path: a}}\nmodel: {name: mlp}\n"
      "task: {name: classification, class_weights: balanced}\n";
  const Config config = valid_config(images);
  EXPECT_TRUE(config.task.has_balanced_weights());
  EXPECT_THAT(std::get<ClassificationTask>(config.task.task).class_weights.values, IsEmpty());
  for (const char* const flag : {"task.class_weights=[]", "task.class_weights=null"})
    EXPECT_FALSE(valid_config(images, {flag}).task.has_balanced_weights()) << flag;
  EXPECT_THAT(errors_of(images, {"task.name=multilabel_classification"}),
              ElementsAre(HasSubstr("task.class_weights: not supported by task "
                                    "multilabel_classification (only by classification and "
                                    "sequence_labeling)")));
  EXPECT_THAT(errors_of(images, {"task.name=sequence_labeling", "model.name=blstm"}),
              ElementsAre(HasSubstr("task.class_weights: must be a list")));
  EXPECT_THAT(errors_of(images, {"feed.producers=external"}),
              ElementsAre(HasSubstr("balanced requires feed.producers internal")));
  EXPECT_THAT(
      errors_of("data: {train: {format: jsonl, fields: {input: x, label: y}, num_classes: 2, "
                "stream: {source: stdin}}}\nmodel: {name: mlp}\ntrain: {max_steps: 5}\n"
                "task: {name: classification, class_weights: balanced}\n"),
      ElementsAre(HasSubstr("balanced cannot be combined with a stream")));
  EXPECT_THAT(
      errors_of(images, {"task.class_weights=balance"}),
      ElementsAre(HasSubstr("must be a list such as [1, 2], the word balanced, or null, got "
                            "'balance'")));
}

TEST(ValidationTest, RequiresDatasetsThatAreEvaluated) {
  const std::string data = "data: {train: {format: text, path: a}, val: {format: text, path: b}}\n";
  EXPECT_THAT(
      errors_of(data + "eval: {datasets: [val, vla]}\n"),
      ElementsAre("my.yaml:2:18: eval.datasets: contains 'vla', which is not a dataset; did "
                  "you mean 'val'?"));
  EXPECT_THAT(errors_of(data + "eval: {datasets: [val, val]}\n"),
              ElementsAre(HasSubstr("contains 'val' twice; remove one")));
  EXPECT_THAT(errors_of(kTextData + "eval: {datasets: [val]}\n"),
              ElementsAre(HasSubstr("eval.datasets")));
  EXPECT_THAT(errors_of(data + "eval: {datasets: [train]}\n"), IsEmpty());
}

TEST(ValidationTest, RequiresEvaluatedDatasetOfMonitor) {
  const std::string data = "data: {train: {format: text, path: a}, val: {format: text, path: b}}\n";
  for (const char* const metric : {"loss", "val/loss", "accuracy"})
    EXPECT_THAT(errors_of(data, {"eval.monitor=" + std::string(metric)}), IsEmpty()) << metric;
  EXPECT_THAT(errors_of(data, {"eval.monitor=test/loss"}),
              ElementsAre(HasSubstr("'test/loss' requires 'test' in eval.datasets")));
  EXPECT_THAT(errors_of(data, {"checkpoint.monitor=[loss, train/loss]"}),
              ElementsAre(HasSubstr("'train/loss' requires 'train' in eval.datasets")));
  EXPECT_EQ(valid_config(data, {"checkpoint.monitor=val/loss"}).checkpoint.monitor,
            std::vector<std::string>{"val/loss"});
  EXPECT_THAT(errors_of(data, {"eval.monitor=\"\""}), ElementsAre(HasSubstr("must not be empty")));
}

TEST(ValidationTest, RequiresLossOfItsNumbers) {
  const std::string data =
      "data: {train: {format: csv, path: a.csv, fields: {target: [a, b]}}}\nmodel: {name: mlp}\n";
  const auto errors = [&](const std::string& task) { return errors_of(data + "task: " + task); };
  EXPECT_THAT(errors("{name: multilabel_classification, loss: dice, smooth: 1}"), IsEmpty());
  EXPECT_THAT(errors("{name: multilabel_classification, smooth: 1}"),
              ElementsAre(HasSubstr("task.smooth: requires task.loss dice")));
  EXPECT_THAT(errors("{name: multilabel_classification, loss: dice, pos_weight: [1, 2]}"),
              ElementsAre(HasSubstr("task.pos_weight: has no effect on task.loss dice")));
  EXPECT_THAT(errors("{name: regression, loss: kl_div}"), IsEmpty());
  EXPECT_THAT(errors("{name: regression, loss: kl_div, beta: 2}"),
              ElementsAre(HasSubstr("task.beta: requires task.loss smooth_l1")));
  EXPECT_THAT(errors_of("data: {train: {format: csv, path: a.csv, fields: {label: y}}}\n"
                        "model: {name: mlp}\ntask: {name: binary_classification, loss: dice}\n"),
              ElementsAre(HasSubstr("set task.name: multilabel_classification")));
}

TEST(ValidationTest, RequiresWhatPlateauMonitors) {
  const std::string data = "data: {train: {format: text, path: a}, val: {format: text, path: b}}\n";
  const std::string plateau = "scheduler={name: reduce_on_plateau, ";
  EXPECT_THAT(errors_of(data, {plateau + "monitor: eval}"}), IsEmpty());
  EXPECT_THAT(errors_of(data, {plateau + "every_steps: {epochs: 1}}"}), IsEmpty());
  EXPECT_THAT(errors_of(data, {plateau + "monitor: eval}", "eval.datasets=[]"}),
              ElementsAre(HasSubstr("scheduler.monitor: eval requires eval.datasets")));
  EXPECT_THAT(
      errors_of(data, {plateau + "monitor: eval, every_steps: 5}"}),
      ElementsAre(HasSubstr("scheduler.every_steps: requires scheduler.monitor train_loss")));
  EXPECT_THAT(errors_of(data, {plateau + "min_lr: 1}"}),
              ElementsAre(HasSubstr("scheduler.min_lr: must be at most optimizer.lr")));
}

TEST(ValidationTest, EvaluatesAverageOfScheduleFreeOptimizer) {
  const std::string optimizer = "optimizer={name: schedule_free_adamw}";
  EXPECT_THAT(errors_of(kTextData, {optimizer, "eval.use_ema=true"}), IsEmpty());
  EXPECT_THAT(errors_of(kTextData, {optimizer, "train.ema_decay=0.9"}),
              ElementsAre(HasSubstr("train.ema_decay=0.9: must be null with optimizer.name")));
  EXPECT_THAT(
      errors_of(kTextData,
                {optimizer, "distributed.shard=optimizer", "distributed.reduction=ordered"}),
      ElementsAre(HasSubstr("distributed.shard=optimizer: must be none with optimizer.name")));
  EXPECT_THAT(errors_of(kTextData, {optimizer, "optimizer.betas=[0, 0.9]"}),
              ElementsAre(HasSubstr("optimizer.betas=[0, 0.9]: must begin with a number above 0")));
}

TEST(ValidationTest, RejectsTagsThatAreNone) {
  const auto errors = [](const std::string& tags) {
    return errors_of(
        "data: {train: {format: jsonl, path: a.jsonl, sequence: {max_length: 8}, "
        "fields: {input_ids: x, labels: y}, num_classes: 3}}\nmodel: {name: bert, pooling: none}\n"
        "task: {name: sequence_labeling, tags: " +
        tags + "}\n");
  };
  EXPECT_THAT(errors("[O, B-PER, I-PER]"), IsEmpty());
  EXPECT_THAT(errors("[O, PER, I-PER]"), ElementsAre(HasSubstr("has 'PER', which is neither O")));
  EXPECT_THAT(errors("[O, I-PER, I-PER]"), ElementsAre(HasSubstr("has 'I-PER' twice")));
}

TEST(ValidationTest, RequiresSettingsThatOthersNeed) {
  EXPECT_THAT(errors_of(kTextData, {"eval.use_ema=true"}),
              ElementsAre(HasSubstr("requires train.ema_decay")));
  EXPECT_THAT(errors_of(kTextData, {"eval.use_ema=true", "train.ema_decay=0.9"}), IsEmpty());
  EXPECT_THAT(errors_of(kTextData, {"train.ema_every_steps=2", "train.ema_warmup=power"}),
              ElementsAre(HasSubstr("train.ema_every_steps=2: requires train.ema_decay"),
                          HasSubstr("train.ema_warmup=power: requires train.ema_decay")));
  EXPECT_THAT(errors_of(kTextData, {"train.ema_decay=0.9", "train.ema_every_steps=2",
                                    "train.ema_warmup=num_updates"}),
              IsEmpty());
  EXPECT_THAT(errors_of(kTextData, {"eval.every_steps=5"}),
              ElementsAre(HasSubstr("requires eval.checkpoints interval; remove it")));
  EXPECT_THAT(errors_of(kTextData, {"eval.every_steps=5", "eval.checkpoints=interval"}), IsEmpty());
  EXPECT_THAT(
      errors_of(kTextData, {"run.on_event_command=[{events: [checkpoint sved], command: [\"\"]}]"}),
      UnorderedElementsAre(
          HasSubstr("run.on_event_command[0].events: 'checkpoint sved' matches no event of level"),
          HasSubstr("run.on_event_command[0].command: must start with a program")));
  EXPECT_THAT(errors_of(kTextData, {"run.on_event_command=[{events: [], command: []}]"}),
              UnorderedElementsAre(HasSubstr("events: must not be empty"),
                                   HasSubstr("command: must not be empty")));
  EXPECT_THAT(
      errors_of(kTextData, {"run.on_event_command=[{events: checkpoint deleted}]"}),
      UnorderedElementsAre(HasSubstr("matches no event"), HasSubstr("command: is required")));
  EXPECT_THAT(errors_of(kTextData, {"eval.on_best_command=[\"\", a]"}),
              ElementsAre(HasSubstr("must start with a program")));
}

TEST(ValidationTest, RequiresWidthThatIsMultipleOfHeads) {
  EXPECT_THAT(
      errors_of(kTextData + "model: {name: gpt, embed_dim: 100, num_heads: 6}\n"),
      ElementsAre("my.yaml:2:31: model.embed_dim: must be a multiple of model.num_heads (6), "
                  "got 100"));
  // The error is located at the section that is given.
  EXPECT_THAT(errors_of(kTextData + "model: {name: gpt, num_heads: 5}\n"),
              ElementsAre(StartsWith("my.yaml:2:1: model.embed_dim: must be a multiple of ")));
  EXPECT_THAT(
      errors_of(kImageData + "model: {name: vit, num_heads: 7}\n"),
      ElementsAre(HasSubstr("model.hidden_dim: must be a multiple of model.num_heads (7)")));
}

TEST(ValidationTest, LimitsBlockSizeToContextLength) {
  const auto text = [](int train, int val) {
    return "data: {train: {format: text, path: a, sequence: {block_size: " + std::to_string(train) +
           "}},\n       val: {format: text, path: b, sequence: {block_size: " +
           std::to_string(val) + "}}}\n";
  };
  EXPECT_THAT(errors_of(text(129, 5)),
              ElementsAre("my.yaml:1:62: data.train.sequence.block_size: must be at most "
                          "model.context_length (128), got 129"));
  EXPECT_THAT(errors_of(text(5, 200)), ElementsAre(HasSubstr("data.val.sequence.block_size")));
  EXPECT_THAT(errors_of(text(129, 5) + "model: {name: gpt, context_length: 129}\n"), IsEmpty());
}

TEST(ValidationTest, RequiresVocabularyOfAllBytes) {
  EXPECT_THAT(
      errors_of(kTextData + "model: {name: gpt, vocab_size: 255}\n"),
      ElementsAre("my.yaml:2:32: model.vocab_size: must be at least 256, because the tokens "
                  "of data.train are bytes; got 255"));
  EXPECT_THAT(
      errors_of("data: {train: {format: tokens, path: a}}\nmodel: {name: gpt, vocab_size: 50}\n"),
      IsEmpty());
}

TEST(ValidationTest, RequiresModelTaskAndDataThatFit) {
  EXPECT_THAT(errors_of(kTextData + "task: {name: classification}\n"),
              ElementsAre("my.yaml:2:14: task.name: classification is not supported by model gpt; "
                          "set language_modeling"));
  EXPECT_THAT(
      errors_of("data: {train: {format: cifar10, path: a}}\n"),
      ElementsAre(HasSubstr("model.name: gpt requires token sequences; data.train must have "
                            "format text or tokens")));
  EXPECT_THAT(errors_of(kImageData + "model: {name: lenet5}\n"), IsEmpty());
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\nmodel: {name: lenet5}\n"),
              ElementsAre(HasSubstr("task.name: language_modeling requires model gpt, gpt2")));
  EXPECT_THAT(errors_of(kTextData + "model: {name: mlp}\ntask: {name: regression}\n"),
              ElementsAre(HasSubstr("model.name: mlp does not accept token sequences, which "
                                    "data.train has")));
}

TEST(ValidationTest, RequiresNameOfDevice) {
  for (const char* const word :
       {"auto", "cpu", "cuda", "cuda:0", "cuda:15", "fake", "fake:123456789"})
    EXPECT_THAT(errors_of(kTextData, {"train.device=" + std::string(word)}), IsEmpty()) << word;
  for (const char* const word : {"gpu", "\"cuda:\"", "cuda:x", "cuda:1x", "cuda:-1", "cuda:999",
                                 "CPU", "fake:", "fake:1234567890"})
    EXPECT_THAT(errors_of(kTextData, {"train.device=" + std::string(word)}),
                ElementsAre(HasSubstr("must be auto, cpu, cuda or cuda:N, got ")))
        << word;
}

TEST(ValidationTest, LimitsProcessesToWorkers) {
  EXPECT_THAT(errors_of(kTextData + "feed: {num_workers: 2, num_processes: 3}\n"),
              ElementsAre(StartsWith("my.yaml:2:39: feed.num_processes: must be at most "
                                     "feed.num_workers (2), got 3")));
  EXPECT_THAT(errors_of(kTextData + "feed: {num_workers: auto, num_processes: 3}\n"), IsEmpty());
  EXPECT_THAT(errors_of(kTextData + "feed: {num_workers: 2, num_processes: 0}\n"), IsEmpty());
}

TEST(ValidationTest, RejectsKeysOfOtherShuffleModes) {
  EXPECT_THAT(errors_of(kTextData + "feed: {shuffle: block, shuffle_block_size: 5}\n"), IsEmpty());
  EXPECT_THAT(errors_of(kTextData + "feed: {shuffle: shards, shuffle_open_shards: 5}\n"),
              IsEmpty());
  EXPECT_THAT(errors_of(kTextData + "feed: {shuffle_block_size: 5}\n"),
              ElementsAre("my.yaml:2:28: feed.shuffle_block_size: requires feed.shuffle block; "
                          "remove it"));
  EXPECT_THAT(errors_of(kTextData + "feed: {shuffle_open_shards: 5, shuffle: block}\n"),
              ElementsAre(HasSubstr("feed.shuffle_open_shards: requires feed.shuffle shards")));
  EXPECT_THAT(errors_of(kTextData + "feed: {shuffle: true}\n"),
              ElementsAre("my.yaml:2:17: feed.shuffle: must be full, none, block or shards, got "
                          "'true'"));
}

TEST(ValidationTest, ChecksAddressesOfCluster) {
  const auto errors = [](const std::string& cluster) {
    return errors_of(kTextData + "cluster: {" + cluster + "}\n");
  };
  EXPECT_THAT(errors("ps: [a:1], worker: [b:65535, \"[::1]:2\"]"), IsEmpty());
  EXPECT_THAT(errors("replicas: async, max_staleness: 2"), IsEmpty());
  EXPECT_THAT(errors("ps: [a:1]"),
              ElementsAre(HasSubstr("cluster.worker: must not be empty; a cluster has")));
  EXPECT_THAT(errors("worker: [a:1]"), ElementsAre(HasSubstr("cluster.ps: must not be empty")));
  for (const char* const address : {"b", "b:0", "b:65536", "b:1x", ":1"})
    EXPECT_THAT(errors("ps: [a:1], worker: ['" + std::string(address) + "']"),
                ElementsAre(HasSubstr("cluster.worker: must be host:port with a port from 1 to "
                                      "65535, got '" +
                                      std::string(address) + "'")));
  EXPECT_THAT(errors("ps: [a:1], worker: [b:1, a:1]"),
              ElementsAre(HasSubstr("cluster.worker: 'a:1' is the address of two tasks")));
  EXPECT_THAT(errors("replicas: sync, max_staleness: 2"),
              ElementsAre(HasSubstr("cluster.max_staleness: must be null with replicas: sync")));
}

TEST(ValidationTest, RequiresMomentumForNesterov) {
  EXPECT_THAT(errors_of(kTextData + "optimizer: {name: sgd, nesterov: true}\n"),
              ElementsAre(HasSubstr("optimizer.nesterov: requires optimizer.momentum above 0")));
  EXPECT_THAT(errors_of(kTextData + "optimizer: {name: sgd, nesterov: true, momentum: 0.9}\n"),
              IsEmpty());
}

TEST(ValidationTest, RequiresTwoBetasBelow1) {
  for (const char* const betas : {"[]", "[0.9]", "[0.9, 0.95, 0.99]", "[0.9, 1]"})
    for (const char* const name : {"adam", "adamw", "lion", "muon"})
      EXPECT_THAT(errors_of(kTextData, {"optimizer.name=" + std::string(name),
                                        "optimizer.betas=" + std::string(betas)}),
                  ElementsAre(HasSubstr("must be two numbers from 0 to below 1")))
          << name << ' ' << betas;
}

TEST(ValidationTest, RejectsEmptyNames) {
  EXPECT_THAT(errors_of(kTextData + "run: {dir: \"\"}\n"),
              ElementsAre(HasSubstr("run.dir: must not be empty")));
  EXPECT_THAT(
      errors_of(kTextData + "control: {socket: \"\"}\n"),
      ElementsAre(HasSubstr("control.socket: must be auto, the path of a socket, or null")));
  EXPECT_THAT(errors_of("data: {train: {format: text, path: \"\"}}\n"),
              ElementsAre(HasSubstr("data.train.path: must not be empty")));
}

}  // namespace
}  // namespace stoker::config::test
