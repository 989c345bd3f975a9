import { describe, expect, it } from 'vitest';
import { WakeUp } from '../../../../src/kafka/kafkajs/wake-up.ts';

async function timed(action: Promise<void>): Promise<number> {
  const started = performance.now();
  await action;
  return performance.now() - started;
}

describe('WakeUp', () => {
  it('ends a wait', async () => {
    const news = new WakeUp();
    const wait = timed(news.wait(10_000));
    news.wake();
    expect(await wait).toBeLessThan(5_000);
  });

  it('keeps what happened while nobody waited, once', async () => {
    const news = new WakeUp();
    news.wake();
    news.wake();
    expect(await timed(news.wait(10_000))).toBeLessThan(5_000);
    expect(await timed(news.wait(30))).toBeGreaterThanOrEqual(25);
  });

  it('ends by itself after the time', async () => {
    const news = new WakeUp();
    expect(await timed(news.wait(30))).toBeGreaterThanOrEqual(25);
    news.wake();
    expect(await timed(news.wait(10_000))).toBeLessThan(5_000);
  });
});
