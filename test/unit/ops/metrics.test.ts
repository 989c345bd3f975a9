import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../src/model/errors.ts';
import { Metrics } from '../../../src/ops/metrics.ts';

describe('Metrics', () => {
  it('reads at each scrape what was counted in plain numbers', async () => {
    const metrics = new Metrics();
    metrics.consumed('in').records += 3;
    metrics.consumed('in').bytes += 100;
    metrics.produced('out').records += 2;
    metrics.addProducedBytes(50);
    metrics.failures('in').skipped++;
    metrics.countError('FENCED');
    metrics.countError('FENCED');
    metrics.countCommit(20, 120);
    metrics.sink('table').deadLettered += 4;
    const text = await metrics.registry.metrics();
    for (const line of [
      'tidemark_records_consumed_total{topic="in"} 3',
      'tidemark_bytes_consumed_total{topic="in"} 100',
      'tidemark_records_produced_total{topic="out"} 2',
      'tidemark_bytes_produced_total 50',
      'tidemark_skipped_records_total{topic="in"} 1',
      'tidemark_errors_total{code="FENCED"} 2',
      'tidemark_commits_total 1',
      'tidemark_commit_seconds_sum 0.02',
      'tidemark_transaction_seconds_sum 0.12',
      'tidemark_sink_dead_lettered_total{stage="table"} 4',
    ]) {
      expect(text).toContain(line);
    }
    // A second scrape tells the same, not the double.
    expect(await metrics.registry.metrics()).toBe(text);
  });

  it('asks those who work for tasks, lags and polls', async () => {
    const metrics = new Metrics();
    const lags = [{ topic: 'in', partition: 1, lag: 7 }];
    const source = { tasks: () => 2, lags: () => lags, lastPollAgeMs: () => 1_500 };
    metrics.attach(source);
    const text = await metrics.registry.metrics();
    expect(text).toContain('tidemark_tasks 2');
    expect(text).toContain('tidemark_partition_lag{topic="in",partition="1"} 7');
    expect(text).toContain('tidemark_last_poll_age_seconds 1.5');
    // A partition that was given away is not reported for ever.
    lags.length = 0;
    expect(await metrics.registry.metrics()).not.toContain('partition="1"');
  });

  it('refuses a registry that another application uses, until that one has ended', () => {
    const registry = new Registry();
    const first = new Metrics(registry);
    expect(() => new Metrics(registry)).toThrow(ConfigurationError);
    first.unregister();
    expect(() => new Metrics(registry)).not.toThrow();
  });
});
