import type { SinkRecord } from '../port.ts';
import type { Effect } from './effect.ts';
import { refusal, type Refusal } from './refusal.ts';
import type { Session } from './session.ts';
import type { Classify } from './sqlstate.ts';

/**
 * Applies an effect part by part, so that records at fault are found and left out, alone: a part that fails is undone by its savepoint and
 * halved, in order, down to single records. `afterRun` belongs to a part as well.
 */
export async function applyIsolated<K, V>(
  session: Session,
  effect: Effect<K, V>,
  records: readonly SinkRecord<K, V>[],
  classify: Classify,
  afterRun: (records: readonly SinkRecord<K, V>[], results: readonly unknown[]) => Promise<void>,
): Promise<readonly Refusal<K, V>[]> {
  const refused: Refusal<K, V>[] = [];
  const parts: (readonly SinkRecord<K, V>[])[] = [records];
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    await session.query('SAVEPOINT tidemark_part');
    try {
      const run = effect.run(session, part);
      const results = await run.done;
      if (results !== undefined) await afterRun(part, results);
      await session.query('RELEASE SAVEPOINT tidemark_part');
      refused.push(...run.refused);
    } catch (error) {
      const remedy = classify(error);
      if (remedy !== 'refuse' && remedy !== 'split') throw error;
      await session.query('ROLLBACK TO SAVEPOINT tidemark_part; RELEASE SAVEPOINT tidemark_part');
      const single = part.length === 1 ? part[0] : undefined;
      if (single !== undefined) {
        refused.push(refusal(single, error));
      } else {
        const middle = part.length >> 1;
        parts.push(part.slice(middle), part.slice(0, middle));
      }
    }
  }
  return refused;
}
