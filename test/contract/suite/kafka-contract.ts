import { afterAll, beforeAll, describe } from 'vitest';
import { adminContract } from './admin-contract.ts';
import { groupContract } from './group-contract.ts';
import { producingContract } from './producing-contract.ts';
import { readingContract } from './reading-contract.ts';
import type { Subject, Traits } from './subject.ts';
import { transactionsContract } from './transactions-contract.ts';

const PARTS = {
  admin: adminContract,
  producing: producingContract,
  reading: readingContract,
  transactions: transactionsContract,
  group: groupContract,
};

/** What every implementation of `src/kafka/port.ts` has to do, in parts that can run side by side. Works on any cluster; uses names of its own. */
export function kafkaContract(
  name: string,
  part: keyof typeof PARTS,
  open: () => Promise<Subject>,
  traits: Traits = { transactionVersion: 2 },
): void {
  describe(`${name}: ${part}`, () => {
    let subject: Subject | undefined;
    beforeAll(async () => {
      subject = await open();
    });
    afterAll(async () => {
      await subject?.close();
    });
    PARTS[part](() => {
      if (subject === undefined) throw new Error('the subject is not open');
      return subject;
    }, traits);
  });
}
